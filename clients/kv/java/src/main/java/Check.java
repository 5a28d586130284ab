import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;

/** Jedis against the server at HOST PORT: see ../README.md. */
public final class Check {
    public static void main(String[] args) throws Exception {
        HostAndPort at = new HostAndPort(args[0], Integer.parseInt(args[1]));
        for (RedisProtocol protocol : RedisProtocol.values()) {
            try (Jedis r = connect(at, protocol)) {
                types(r);
                pipeline(r);
                transaction(r, at, protocol);
                pubsub(r, at, protocol);
            }
        }
        try (JedisPooled r = new JedisPooled(at.getHost(), at.getPort())) {
            r.set("before", "restart");
            System.out.println("restart");
            System.in.read();
            eventually(() -> "PONG".equals(r.ping()));
            expect("set", r.set("after", "1"), "OK");
            expect("get", r.get("after"), "1");
        }
        System.out.println("ok jedis");
        System.exit(0);
    }

    private static Jedis connect(HostAndPort at, RedisProtocol protocol) {
        return new Jedis(at, DefaultJedisClientConfig.builder().protocol(protocol).clientName("check").build());
    }

    private static void types(Jedis r) {
        r.flushAll();
        expect("name", r.clientGetname(), "check");
        expect("set", r.setex("s", 100, "v"), "OK");
        expect("get", r.get("s"), "v");
        expect("incrBy", r.incrBy("n", 5), 5L);
        expect("rpush", r.rpush("l", "a", "b", "c"), 3L);
        expect("lrange", r.lrange("l", 0, -1), List.of("a", "b", "c"));
        expect("blpop", r.blpop(1, "l"), List.of("l", "a"));
        expect("hset", r.hset("h", Map.of("f", "1", "g", "2")), 2L);
        expect("hgetAll", r.hgetAll("h"), Map.of("f", "1", "g", "2"));
        expect("sadd", r.sadd("set", "x", "y"), 2L);
        expect("smembers", r.smembers("set"), Set.of("x", "y"));
        expect("zadd", r.zadd("z", Map.of("one", 1.0, "two", 2.5)), 2L);
        expect("zrange", r.zrangeWithScores("z", 0, -1).get(1).getScore(), 2.5);
        expect("scan", r.scan("0").getResult().size(), 6);
        try {
            r.lpush("s", "wrong");
            throw new AssertionError("a wrong type was not refused");
        } catch (JedisDataException e) {
            expect("wrong type", e.getMessage().startsWith("WRONGTYPE"), true);
        }
    }

    private static void pipeline(Jedis r) {
        Pipeline p = r.pipelined();
        List<Response<String>> gets = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            p.set("p" + i, Integer.toString(i));
            gets.add(p.get("p" + i));
        }
        p.sync();
        for (int i = 0; i < 1000; i++) {
            expect("pipeline", gets.get(i).get(), Integer.toString(i));
        }
    }

    private static void transaction(Jedis r, HostAndPort at, RedisProtocol protocol) {
        Transaction t = r.multi();
        t.incr("balance");
        t.incr("balance");
        expect("exec", t.exec(), List.of(1L, 2L));
        try (Jedis other = connect(at, protocol)) {
            r.watch("balance");
            other.incr("balance");
            t = r.multi();
            t.incr("balance");
            expect("a watched key changed", t.exec(), null);
        }
    }

    private static void pubsub(Jedis r, HostAndPort at, RedisProtocol protocol) throws InterruptedException {
        BlockingQueue<String> got = new ArrayBlockingQueue<>(8);
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                got.add("subscribed");
            }

            @Override
            public void onMessage(String channel, String message) {
                got.add(message);
                unsubscribe();
            }
        };
        Thread thread = new Thread(() -> {
            try (Jedis s = connect(at, protocol)) {
                s.subscribe(listener, "news");
            }
        });
        thread.start();
        expect("subscribe", got.poll(5, TimeUnit.SECONDS), "subscribed");
        expect("publish", r.publish("news", "hello"), 1L);
        expect("message", got.poll(5, TimeUnit.SECONDS), "hello");
        thread.join(5000);
    }

    private static void eventually(BooleanSupplier holds) throws InterruptedException {
        for (int i = 0; i < 100; i++) {
            try {
                if (holds.getAsBoolean()) {
                    return;
                }
            } catch (RuntimeException e) {
                // The connection that the restart broke.
            }
            Thread.sleep(100);
        }
        throw new AssertionError("the client did not reconnect");
    }

    private static void expect(String what, Object got, Object want) {
        if (want == null ? got != null : !want.equals(got)) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }
}
