// What a lock costs with etcd's own concurrency package, beside zkcoord's in the same run.
//
//	etcd serve MEMBERS FOLDER   a cluster in this process; prints its client addresses,
//	                            ends with its standard input
//	etcd client ENDPOINTS       one command a line on standard input, one line of
//	                            microseconds on standard output for each:
//	    lock N       acquire + release, N times: two figures each, the acquire and both together
//	    handoff N    from the release in one session to the grant in another, N times
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "serve" {
		members, err := strconv.Atoi(os.Args[2])
		check(err)
		serve(members, os.Args[3])
	} else if len(os.Args) == 3 && os.Args[1] == "client" {
		client(strings.Split(os.Args[2], ","))
	} else {
		log.Fatal("usage: etcd serve MEMBERS FOLDER | etcd client ENDPOINTS")
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func freeAddress() url.URL {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer listener.Close()
	return url.URL{Scheme: "http", Host: listener.Addr().String()}
}

func serve(members int, folder string) {
	var configs []*embed.Config
	var initial []string
	for number := range members {
		config := embed.NewConfig()
		config.Name = fmt.Sprintf("member-%d", number)
		config.Dir = filepath.Join(folder, config.Name)
		config.LogLevel = "panic" // its errors at the end are the end itself
		peer, reached := freeAddress(), freeAddress()
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{reached}, []url.URL{reached}
		initial = append(initial, config.Name+"="+peer.String())
		configs = append(configs, config)
	}
	var servers []*embed.Etcd
	var addresses []string
	for _, config := range configs {
		config.InitialCluster = strings.Join(initial, ",")
		server, err := embed.StartEtcd(config)
		check(err)
		servers = append(servers, server)
		addresses = append(addresses, config.ListenClientUrls[0].Host)
	}
	for _, server := range servers {
		select {
		case <-server.Server.ReadyNotify():
		case <-time.After(60 * time.Second):
			log.Fatal("no leader after 60 s")
		}
	}
	fmt.Println(strings.Join(addresses, ","))
	bufio.NewReader(os.Stdin).ReadString(0) // until whoever started this is done
	for _, server := range servers {
		server.Close()
	}
}

func client(endpoints []string) {
	var sessions [2]*concurrency.Session
	for number := range sessions {
		reached, err := clientv3.New(clientv3.Config{
			Endpoints: endpoints, DialTimeout: 10 * time.Second,
		})
		check(err)
		defer reached.Close()
		sessions[number], err = concurrency.NewSession(reached, concurrency.WithTTL(10))
		check(err)
		defer sessions[number].Close()
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) != 2 {
			log.Fatalf("not a command: %q", lines.Text())
		}
		count, err := strconv.Atoi(words[1])
		check(err)
		switch words[0] {
		case "lock":
			answer(locks(sessions[0], count))
		case "handoff":
			answer(handOffs(sessions[0], sessions[1], count))
		default:
			log.Fatalf("not a command: %q", lines.Text())
		}
	}
}

func answer(taken []time.Duration) {
	for _, one := range taken {
		fmt.Printf("%d ", one.Microseconds())
	}
	fmt.Println()
}

func locks(session *concurrency.Session, count int) []time.Duration {
	ctx := context.Background()
	mutex := concurrency.NewMutex(session, "/bench/lock")
	var taken []time.Duration
	for range count {
		begun := time.Now()
		check(mutex.Lock(ctx))
		taken = append(taken, time.Since(begun))
		check(mutex.Unlock(ctx))
		taken = append(taken, time.Since(begun))
	}
	return taken
}

func handOffs(one, two *concurrency.Session, count int) []time.Duration {
	ctx := context.Background()
	first := concurrency.NewMutex(one, "/bench/hand-off")
	second := concurrency.NewMutex(two, "/bench/hand-off")
	var taken []time.Duration
	for range count {
		check(first.Lock(ctx))
		granted := make(chan time.Time)
		go func() {
			check(second.Lock(ctx))
			granted <- time.Now()
		}()
		for { // both are in the queue
			found, err := one.Client().Get(ctx, "/bench/hand-off/", clientv3.WithPrefix(),
				clientv3.WithCountOnly())
			check(err)
			if found.Count == 2 {
				break
			}
		}
		time.Sleep(200 * time.Millisecond) // a watch of the past catches up once in 100 ms
		begun := time.Now()
		check(first.Unlock(ctx))
		taken = append(taken, (<-granted).Sub(begun))
		check(second.Unlock(ctx))
	}
	return taken
}
