// Publishes to a NATS JetStream stream and waits for every acknowledgement: the yardstick for
// `tidewire bench ack --protocol native --level durable`.
//
// Start the server with file storage and `sync_interval: always`, for example
//
//	printf 'jetstream { store_dir: "/tmp/js", sync_interval: always }\n' > js.conf
//	nats-server -a 127.0.0.1 -p 4222 -c js.conf
//
// Every connection keeps a window of publishes in flight (asynchronous publishing) for the whole
// duration, then waits for what is outstanding. With `-batch N` it sends atomic batches of N messages instead
// (since NATS 2.12; at most 1,000 messages each), of which the last one is acknowledged for all, one batch after
// the other on each connection. Prints one JSON object.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
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
	batch := flag.Int("batch", 0, "messages of an atomic batch, at most 1000; 0: asynchronous publishing")
	duration := flag.Duration("duration", 3*time.Second, "how long to publish")
	flag.Parse()

	setup, js := dial(*url, *window)
	_ = js.DeleteStream("BENCH")
	check("add the stream", addStream(setup, *batch > 0))

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
			subject, payload := fmt.Sprintf("bench.%d", i), make([]byte, *size)
			if *batch > 0 {
				publishBatches(conn, subject, payload, *batch, until, &acked, &failed)
			} else {
				publish(js, subject, payload, *window, until, &acked, &failed)
			}
		}()
	}
	all.Wait()
	took := time.Since(begin).Seconds()
	_ = js.DeleteStream("BENCH")
	setup.Close()
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"connections": *connections, "size": *size, "window": *window, "batch": *batch, "seconds": took,
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

// addStream makes the stream by a request of its own, because the library may not know of atomic batches.
func addStream(conn *nats.Conn, batches bool) error {
	config, err := json.Marshal(map[string]any{
		"name": "BENCH", "subjects": []string{"bench.>"}, "storage": "file", "retention": "limits",
		"num_replicas": 1, "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_msg_size": -1,
		"discard": "old", "allow_atomic": batches,
	})
	if err != nil {
		return err
	}
	reply, err := conn.Request("$JS.API.STREAM.CREATE.BENCH", config, 5*time.Second)
	if err != nil {
		return err
	}
	return refused(reply)
}

// refused is the error that a reply of JetStream holds.
func refused(reply *nats.Msg) error {
	var said struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &said); err != nil {
		return err
	}
	if said.Error != nil {
		return fmt.Errorf("%s", said.Error.Description)
	}
	return nil
}

// publishBatches sends one atomic batch after the other, until the time is up.
func publishBatches(conn *nats.Conn, subject string, payload []byte, size int, until time.Time, acked, failed *atomic.Int64) {
	for number := 0; time.Now().Before(until); number++ {
		id := fmt.Sprintf("%s.%d", subject, number)
		message := func(sequence int) *nats.Msg {
			made := nats.NewMsg(subject)
			made.Header["Nats-Batch-Id"] = []string{id}
			made.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(sequence)}
			made.Data = payload
			return made
		}
		for sequence := 1; sequence < size; sequence++ {
			check("publish", conn.PublishMsg(message(sequence)))
		}
		last := message(size)
		last.Header["Nats-Batch-Commit"] = []string{"1"}
		reply, err := conn.RequestMsg(last, 30*time.Second)
		if err == nil {
			err = refused(reply)
		}
		if err != nil {
			if failed.Add(int64(size)) == int64(size) {
				fmt.Fprintln(os.Stderr, "a batch was refused:", err)
			}
			continue
		}
		acked.Add(int64(size))
	}
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
