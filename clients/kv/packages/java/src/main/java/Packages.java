import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RLock;
import org.redisson.api.RMapCache;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RateIntervalUnit;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's lock lets one thread at a time in, again if it is in; its semaphore, limiter, queues and maps do what they say. */
public class Packages {
  static void check(boolean right, String what) {
    if (!right) {
      System.err.println(what);
      System.exit(1);
    }
  }

  public static void main(String[] args) throws Exception {
    Config config = new Config();
    config.useSingleServer().setAddress("redis://" + args[0] + ":" + args[1]);
    RedissonClient redisson = Redisson.create(config);

    AtomicInteger inside = new AtomicInteger();
    AtomicInteger most = new AtomicInteger();
    CountDownLatch done = new CountDownLatch(8);
    for (int n = 0; n < 8; n++) {
      new Thread(() -> {
        RLock lock = redisson.getLock("redisson:lock");
        lock.lock();
        lock.lock(10, TimeUnit.SECONDS);
        most.accumulateAndGet(inside.incrementAndGet(), Math::max);
        try {
          Thread.sleep(10);
        } catch (InterruptedException e) {
          throw new IllegalStateException(e);
        }
        inside.decrementAndGet();
        lock.unlock();
        lock.unlock();
        done.countDown();
      }).start();
    }
    check(done.await(60, TimeUnit.SECONDS), "not all were let in");
    check(most.get() == 1, most.get() + " were inside at once");
    check(!redisson.getLock("redisson:lock").isLocked(), "the lock is held by nobody");

    RReadWriteLock both = redisson.getReadWriteLock("redisson:both");
    both.readLock().lock();
    Thread writer = new Thread(() -> check(!both.writeLock().tryLock(), "a writer came in beside a reader"));
    writer.start();
    writer.join();
    both.readLock().unlock();

    RSemaphore semaphore = redisson.getSemaphore("redisson:semaphore");
    semaphore.trySetPermits(2);
    check(semaphore.tryAcquire() && semaphore.tryAcquire() && !semaphore.tryAcquire(), "the semaphore has two");
    semaphore.release();
    check(semaphore.tryAcquire(), "one was given back");

    RRateLimiter limiter = redisson.getRateLimiter("redisson:limiter");
    limiter.trySetRate(RateType.OVERALL, 5, 1, RateIntervalUnit.HOURS);
    int passed = 0;
    for (int n = 0; n < 8; n++) {
      passed += limiter.tryAcquire() ? 1 : 0;
    }
    check(passed == 5, passed + " were let through");

    RBlockingQueue<String> queue = redisson.getBlockingQueue("redisson:queue");
    RDelayedQueue<String> delayed = redisson.getDelayedQueue(queue);
    delayed.offer("later", 300, TimeUnit.MILLISECONDS);
    check("later".equals(queue.poll(20, TimeUnit.SECONDS)), "what was put off has not come");
    delayed.destroy();

    RMapCache<String, Integer> map = redisson.getMapCache("redisson:map");
    map.put("short", 1, 50, TimeUnit.MILLISECONDS);
    map.put("long", 2, 1, TimeUnit.HOURS);
    Thread.sleep(100);
    check(map.get("short") == null && map.get("long") == 2, "the map forgets what it should");

    CountDownLatch heard = new CountDownLatch(1);
    redisson.getTopic("redisson:topic").addListener(String.class, (channel, message) -> heard.countDown());
    redisson.getTopic("redisson:topic").publish("news");
    check(heard.await(10, TimeUnit.SECONDS), "nothing was heard");
    redisson.getKeys().deleteByPattern("redisson:*");
    redisson.shutdown();
    System.out.println("ok");
  }
}
