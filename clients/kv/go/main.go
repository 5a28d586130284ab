// go-redis against the server at HOST PORT, over TLS if a file of authorities follows: see ../README.md.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func main() {
	addr := os.Args[1] + ":" + os.Args[2]
	secured := secured()
	for _, protocol := range []int{2, 3} {
		r := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, ClientName: "check", TLSConfig: secured})
		types(r)
		pipeline(r)
		transaction(r)
		pubsub(r)
		must(r.Close())
	}
	r := redis.NewClient(&redis.Options{Addr: addr, TLSConfig: secured})
	must(r.Set(ctx, "before", "restart", 0).Err())
	fmt.Println("restart")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	eventually(func() bool { return r.Ping(ctx).Err() == nil })
	must(r.Set(ctx, "after", "1", 0).Err())
	expect("after", r.Get(ctx, "after").Val(), "1")
	fmt.Println("ok go-redis", redis.Version())
}

// Nil without a file.
func secured() *tls.Config {
	if len(os.Args) < 4 {
		return nil
	}
	pem, err := os.ReadFile(os.Args[3])
	must(err)
	roots := x509.NewCertPool()
	expect("authorities", roots.AppendCertsFromPEM(pem), true)
	return &tls.Config{RootCAs: roots, ServerName: os.Args[1]}
}

func types(r *redis.Client) {
	must(r.FlushAll(ctx).Err())
	expect("name", r.ClientGetName(ctx).Val(), "check")
	must(r.Set(ctx, "s", "v", 100*time.Second).Err())
	expect("get", r.Get(ctx, "s").Val(), "v")
	if ttl := r.TTL(ctx, "s").Val(); ttl <= 0 || ttl > 100*time.Second {
		fail("ttl", ttl)
	}
	expect("incr", r.IncrBy(ctx, "n", 5).Val(), int64(5))
	expect("incrbyfloat", r.IncrByFloat(ctx, "n", 0.5).Val(), 5.5)
	expect("rpush", r.RPush(ctx, "l", "a", "b", "c").Val(), int64(3))
	expect("lrange", strings.Join(r.LRange(ctx, "l", 0, -1).Val(), ","), "a,b,c")
	expect("blpop", strings.Join(r.BLPop(ctx, time.Second, "l").Val(), ","), "l,a")
	expect("hset", r.HSet(ctx, "h", "f", "1", "g", "2").Val(), int64(2))
	expect("hgetall", fmt.Sprint(r.HGetAll(ctx, "h").Val()), "map[f:1 g:2]")
	expect("sadd", r.SAdd(ctx, "set", "x", "y").Val(), int64(2))
	expect("smembers", len(r.SMembers(ctx, "set").Val()), 2)
	expect("zadd", r.ZAdd(ctx, "z", redis.Z{Score: 1, Member: "one"}, redis.Z{Score: 2.5, Member: "two"}).Val(), int64(2))
	expect("zrange", fmt.Sprint(r.ZRangeWithScores(ctx, "z", 0, -1).Val()), "[{1 one} {2.5 two}]")
	keys := 0
	for it := r.Scan(ctx, 0, "*", 10).Iterator(); it.Next(ctx); {
		keys++
	}
	expect("scan", keys, 6)
	if err := r.LPush(ctx, "s", "wrong").Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		fail("wrong type", err)
	}
	if err := r.Get(ctx, "nothing").Err(); !errors.Is(err, redis.Nil) {
		fail("missing key", err)
	}
}

func pipeline(r *redis.Client) {
	p := r.Pipeline()
	gets := make([]*redis.StringCmd, 1000)
	for i := range gets {
		p.Set(ctx, "p"+strconv.Itoa(i), i, 0)
		gets[i] = p.Get(ctx, "p"+strconv.Itoa(i))
	}
	_, err := p.Exec(ctx)
	must(err)
	for i, get := range gets {
		expect("pipeline", get.Val(), strconv.Itoa(i))
	}
}

func transaction(r *redis.Client) {
	must(r.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.IncrBy(ctx, "balance", 2).Err() })
		return err
	}, "balance"))
	err := r.Watch(ctx, func(tx *redis.Tx) error {
		must(r.Incr(ctx, "balance").Err())
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Incr(ctx, "balance").Err() })
		return err
	}, "balance")
	if !errors.Is(err, redis.TxFailedErr) {
		fail("a watched key changed", err)
	}
}

func pubsub(r *redis.Client) {
	s := r.Subscribe(ctx, "news")
	defer s.Close()
	_, err := s.Receive(ctx)
	must(err)
	expect("publish", r.Publish(ctx, "news", "hello").Val(), int64(1))
	select {
	case m := <-s.Channel():
		expect("message", m.Payload, "hello")
	case <-time.After(5 * time.Second):
		fail("message", "none")
	}
}

func eventually(holds func() bool) {
	for range 100 {
		if holds() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	fail("reconnect", "not in 10 s")
}

func expect[T comparable](what string, got, want T) {
	if got != want {
		fail(what, fmt.Sprintf("got %v, want %v", got, want))
	}
}

func must(err error) {
	if err != nil {
		fail("error", err)
	}
}

func fail(what string, why any) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, why)
	os.Exit(1)
}
