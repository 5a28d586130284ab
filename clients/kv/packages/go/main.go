// asynq does its jobs, with delays and retries; redsync lets one at a time in.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// jobs has asynq do thirty jobs at once, one later, one that fails first, and refuse one that is there already.
func jobs(addr string) {
	server := asynq.RedisClientOpt{Addr: addr}
	client := asynq.NewClient(server)
	defer client.Close()
	for n := range 30 {
		_, err := client.Enqueue(asynq.NewTask("plain", []byte{byte(n)}))
		check(err)
	}
	_, err := client.Enqueue(asynq.NewTask("later", nil), asynq.ProcessIn(time.Second))
	check(err)
	_, err = client.Enqueue(asynq.NewTask("flaky", nil), asynq.MaxRetry(3))
	check(err)
	once := asynq.NewTask("once", []byte("x"))
	_, err = client.Enqueue(once, asynq.Unique(time.Minute))
	check(err)
	if _, err = client.Enqueue(once, asynq.Unique(time.Minute)); !errors.Is(err, asynq.ErrDuplicateTask) {
		check(fmt.Errorf("the same job was taken twice: %v", err))
	}
	var done, failed atomic.Int32
	worker := asynq.NewServer(server, asynq.Config{
		Concurrency:              4,
		LogLevel:                 asynq.ErrorLevel,
		DelayedTaskCheckInterval: 200 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond },
	})
	check(worker.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "flaky" && failed.Add(1) == 1 {
			return errors.New("once")
		}
		done.Add(1)
		return nil
	})))
	until := time.Now().Add(30 * time.Second)
	for done.Load() < 33 && time.Now().Before(until) {
		time.Sleep(20 * time.Millisecond)
	}
	worker.Shutdown()
	inspector := asynq.NewInspector(server)
	defer inspector.Close()
	info, err := inspector.GetQueueInfo("default")
	check(err)
	if done.Load() != 33 || info.Size != 0 || info.Processed != 34 || info.Failed != 1 {
		check(fmt.Errorf("%d were done; the queue: %+v", done.Load(), *info))
	}
}

// locks has redsync let eight in, one at a time, each of which makes its time longer.
func locks(addr string) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	sync8 := redsync.New(goredis.NewPool(client))
	var inside, most atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			mutex := sync8.NewMutex("redsync", redsync.WithTries(500), redsync.WithRetryDelay(10*time.Millisecond))
			check(mutex.Lock())
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(10 * time.Millisecond)
			ok, err := mutex.Extend()
			check(err)
			inside.Add(-1)
			unlocked, err := mutex.Unlock()
			check(err)
			if !ok || !unlocked {
				check(errors.New("the lock was lost"))
			}
		}()
	}
	all.Wait()
	if most.Load() != 1 {
		check(fmt.Errorf("%d were inside at once", most.Load()))
	}
}

func main() {
	addr := os.Args[1] + ":" + os.Args[2]
	jobs(addr)
	locks(addr)
	fmt.Println("ok")
}
