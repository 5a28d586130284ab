// Publishes to a NATS JetStream stream and waits for every acknowledgement: the yardstick for
// `tidewire bench ack --protocol native --level durable`.
//
// Start the server with file storage and `sync_interval: always`, for example
//
//	printf 'jetstream { store_dir: "/tmp/js", sync_interval: always }\n' > js.conf
//	nats-server -a 127.0.0.1 -p 4222 -c js.conf
//
// Every connection keeps a window of publishes in flight (asynchronous publishing) for the whole
// duration, then waits for what is outstanding. Prints one JSON object.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

func main() {
	url := flag.String("url", "nats://127.0.0.1:4222", "server")
	connections := flag.Int("connections", 50, "connections")
	size := flag.Int("size", 100, "payload bytes")
	window := flag.Int("window", 4096, "publishes in flight a connection")
	duration := flag.Duration("duration", 3*time.Second, "how long to publish")
	flag.Parse()

	setup, js := dial(*url, *window)
	_ = js.DeleteStream("BENCH")
	_, err := js.AddStream(&nats.StreamConfig{Name: "BENCH", Subjects: []string{"bench.>"}, Storage: nats.FileStorage})
	check("add the stream", err)

	var acked, failed atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	until := begin.Add(*duration)
	for i := range *connections {
		all.Add(1)
		go func() {
			defer all.Done()
			conn, js := dial(*url, *window)
			defer conn.Close()
			publish(js, fmt.Sprintf("bench.%d", i), make([]byte, *size), *window, until, &acked, &failed)
		}()
	}
	all.Wait()
	took := time.Since(begin).Seconds()
	_ = js.DeleteStream("BENCH")
	setup.Close()
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"connections": *connections, "size": *size, "window": *window, "seconds": took,
		"acknowledged": acked.Load(), "failed": failed.Load(),
		"messages_per_second": float64(acked.Load()) / took,
	})
	if failed.Load() > 0 {
		os.Exit(2)
	}
}

// publish keeps `window` publishes in flight until the time is up, and sees each one acknowledged.
func publish(js nats.JetStreamContext, subject string, payload []byte, window int, until time.Time, acked, failed *atomic.Int64) {
	waiting := make(chan nats.PubAckFuture, window)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for future := range waiting {
			select {
			case <-future.Ok():
				acked.Add(1)
			case <-future.Err():
				failed.Add(1)
			case <-time.After(30 * time.Second):
				failed.Add(1)
			}
		}
	}()
	for time.Now().Before(until) {
		for range 64 {
			future, err := js.PublishAsync(subject, payload)
			if err != nil {
				failed.Add(1)
				continue
			}
			waiting <- future
		}
	}
	close(waiting)
	<-done
}

func dial(url string, window int) (*nats.Conn, nats.JetStreamContext) {
	conn, err := nats.Connect(url)
	check("connect", err)
	js, err := conn.JetStream(nats.PublishAsyncMaxPending(window + 64))
	check("open JetStream", err)
	return conn, js
}

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "cannot %s: %v\n", what, err)
		os.Exit(1)
	}
}
