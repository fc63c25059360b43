import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's own InterProcessMutex, driven by lines on stdin; see driver.py for the protocol.
 *
 * <p>Arguments: connect string, session timeout in milliseconds. One session for all. Every request
 * has a thread of its own, because Curator's mutex belongs to the thread that acquired it.
 */
public final class CuratorDriver {
    private static final Map<String, CountDownLatch> HELD = new ConcurrentHashMap<>();

    private final CuratorFramework client;

    private CuratorDriver(CuratorFramework client) {
        this.client = client;
    }

    public static void main(String[] args) throws Exception {
        int timeout = Integer.parseInt(args[1]);
        try (CuratorFramework client =
                CuratorFrameworkFactory.builder()
                        .connectString(args[0])
                        .sessionTimeoutMs(timeout)
                        .connectionTimeoutMs(15_000)
                        .retryPolicy(new ExponentialBackoffRetry(50, 10, 500))
                        .build()) {
            client.start();
            if (!client.blockUntilConnected(20, TimeUnit.SECONDS)) {
                say("failed no connection to " + args[0]);
                return;
            }
            say("ready " + client.getZookeeperClient().getZooKeeper().getSessionId());
            new CuratorDriver(client).serve();
        }
        System.exit(0); // threads that still wait do not keep it
    }

    private void serve() throws Exception {
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "acquire" -> start(words[1], () -> acquire(words));
                case "release" -> HELD.remove(words[1]).countDown();
                case "bench" -> start(words[1], () -> bench(words));
                case "quit" -> {
                    return;
                }
                default -> say("failed unknown command " + line);
            }
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void start(String id, Work work) {
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                work.run();
                            } catch (Throwable error) {
                                say("error " + id + " " + error);
                            }
                        },
                        "driver-" + id);
        thread.setDaemon(true);
        thread.start();
    }

    /** acquire ID PATH MILLIS: hold it until "release ID". */
    private void acquire(String[] words) throws Exception {
        String id = words[1];
        long millis = Long.parseLong(words[3]);
        CountDownLatch latch = new CountDownLatch(1);
        HELD.put(id, latch);
        InterProcessMutex mutex = new InterProcessMutex(client, words[2]);
        if (millis < 0) {
            mutex.acquire();
        } else if (!mutex.acquire(millis, TimeUnit.MILLISECONDS)) {
            HELD.remove(id);
            say("timeout " + id);
            return;
        }
        say("acquired " + id);
        latch.await();
        mutex.release();
        say("released " + id);
    }

    /** bench ID PATH ROUNDS THREADS: acquire and release, each thread so many times. */
    private void bench(String[] words) throws Exception {
        int rounds = Integer.parseInt(words[3]);
        int threads = Integer.parseInt(words[4]);
        long[] nanos = new long[rounds * threads];
        CountDownLatch ready = new CountDownLatch(threads);
        CountDownLatch go = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(threads);
        Throwable[] failed = new Throwable[1];
        for (int number = 0; number < threads; number++) {
            int mine = number;
            String path = words[2].replace("{}", Integer.toString(number));
            start(
                    words[1],
                    () -> {
                        try {
                            InterProcessMutex mutex = new InterProcessMutex(client, path);
                            ready.countDown();
                            go.await();
                            for (int round = 0; round < rounds; round++) {
                                long begun = System.nanoTime();
                                mutex.acquire();
                                mutex.release();
                                nanos[mine * rounds + round] = System.nanoTime() - begun;
                            }
                        } catch (Throwable error) {
                            failed[0] = error;
                        } finally {
                            done.countDown();
                        }
                    });
        }
        ready.await();
        long begun = System.nanoTime();
        go.countDown();
        done.await();
        long wall = System.nanoTime() - begun;
        if (failed[0] != null) {
            say("error " + words[1] + " " + failed[0]);
            return;
        }
        StringBuilder text = new StringBuilder("bench " + words[1] + " " + wall);
        for (long each : nanos) {
            text.append(' ').append(each);
        }
        say(text.toString());
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
