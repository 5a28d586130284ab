// Sends batches of 100 lines of 100 bytes as fast as they are acknowledged, and prints messages a second.
//
//	flood -to HOST:PORT -producer NAME [-stream NAME] [-level LEVEL] -count N
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	ingest "github.com/tidewire/tidewire/clients/ingest/go"
)

func main() {
	to := flag.String("to", "127.0.0.1:7400", "HOST:PORT, unix:/PATH or unix:@NAME")
	producer := flag.String("producer", "", "the producer's name")
	stream := flag.String("stream", "", "the stream")
	level := flag.String("level", "durable", "received, durable or replicated")
	count := flag.Int("count", 1_000_000, "how many messages")
	flag.Parse()
	levels := map[string]ingest.Level{"received": ingest.Received, "durable": ingest.Durable, "replicated": ingest.Replicated}
	batch := make([][]byte, 100)
	for at := range batch {
		batch[at] = bytes.Repeat([]byte("x"), 100)
	}
	ctx, began := context.Background(), time.Now()
	p, err := ingest.NewProducer(ctx, *to, ingest.ProducerConfig{Name: *producer, Stream: *stream, Level: levels[*level]})
	if err != nil {
		log.Fatal(err)
	}
	for range *count / len(batch) {
		if _, err := p.SendBatch(ctx, batch); err != nil {
			log.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.0f\n", float64(*count)/time.Since(began).Seconds())
}
