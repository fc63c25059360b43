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
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
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
    private final String[] arguments;

    private CuratorDriver(CuratorFramework client, String[] arguments) {
        this.client = client;
        this.arguments = arguments;
    }

    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = connect(args)) {
            if (client.getZookeeperClient().isConnected()) {
                say("ready " + client.getZookeeperClient().getZooKeeper().getSessionId());
                new CuratorDriver(client, args).serve();
            } else {
                say("failed no connection to " + args[0]);
            }
        }
        System.exit(0); // threads that still wait do not keep it
    }

    private static CuratorFramework connect(String[] args) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.builder()
                        .connectString(args[0])
                        .sessionTimeoutMs(Integer.parseInt(args[1]))
                        .connectionTimeoutMs(15_000)
                        .retryPolicy(new ExponentialBackoffRetry(50, 10, 500))
                        .build();
        client.start();
        client.blockUntilConnected(20, TimeUnit.SECONDS);
        return client;
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
                case "permits" -> start(words[1], () -> permits(words));
                case "handoffs" -> start(words[1], () -> handOffs(words));
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
        answer(words[1], wall, nanos);
    }

    private static void answer(String id, long wall, long[] nanos) {
        StringBuilder text = new StringBuilder("bench " + id + " " + wall);
        for (long each : nanos) {
            text.append(' ').append(each);
        }
        say(text.toString());
    }

    /** permits ID PATH ROUNDS: acquire and return one of two permits, one after the other. */
    private void permits(String[] words) throws Exception {
        long[] nanos = new long[Integer.parseInt(words[3])];
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, words[2], 2);
        long start = System.nanoTime();
        for (int round = 0; round < nanos.length; round++) {
            long begun = System.nanoTime();
            semaphore.returnLease(semaphore.acquire());
            nanos[round] = System.nanoTime() - begun;
        }
        answer(words[1], System.nanoTime() - start, nanos);
    }

    /** handoffs ID PATH ROUNDS: from the release in one session to the grant in another. */
    private void handOffs(String[] words) throws Exception {
        long[] nanos = new long[Integer.parseInt(words[3])];
        long start = System.nanoTime();
        try (CuratorFramework other = connect(arguments)) {
            InterProcessMutex first = new InterProcessMutex(client, words[2]);
            InterProcessMutex second = new InterProcessMutex(other, words[2]);
            for (int round = 0; round < nanos.length; round++) {
                nanos[round] = handOff(first, second, words[2]);
            }
        }
        answer(words[1], System.nanoTime() - start, nanos);
    }

    private long handOff(InterProcessMutex first, InterProcessMutex second, String path)
            throws Exception {
        first.acquire();
        long[] granted = new long[1];
        Thread waiter =
                new Thread(
                        () -> {
                            try {
                                second.acquire();
                                granted[0] = System.nanoTime();
                                second.release();
                            } catch (Exception error) {
                                throw new IllegalStateException(error);
                            }
                        });
        waiter.start();
        while (client.getChildren().forPath(path).size() < 2) {
            Thread.sleep(1);
        }
        Thread.sleep(20); // its watch is set a moment after it shows up
        long begun = System.nanoTime();
        first.release();
        waiter.join();
        return granted[0] - begun;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
