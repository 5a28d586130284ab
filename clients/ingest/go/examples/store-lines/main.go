// Stores each line of a file exactly once, whatever is killed meanwhile: run it again until it ends with status 0.
//
//	store-lines -to HOST:PORT -producer NAME [-stream NAME] FILE
//
// The id of a line is the offset of its end in FILE. So the server's mark says where to go on, and nothing has to be remembered
// here. A last line without its line break is left for the next run. FILE may grow, and must not change otherwise. With - instead
// of FILE, the lines of standard input are stored, numbered from the server's mark on.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	ingest "github.com/tidewire/tidewire/clients/ingest/go"
)

var (
	to       = flag.String("to", "127.0.0.1:7400", "HOST:PORT, unix:/PATH or unix:@NAME")
	producer = flag.String("producer", "", "the producer's name")
	stream   = flag.String("stream", "", "the stream")
	token    = flag.String("token", "", "a secret, where the server asks for one")
	ca       = flag.String("tls-ca", "", "speak TLS; the authorities of the server's certificate")
	level    = flag.String("level", "durable", "received, durable or replicated")
	progress = flag.Bool("progress", false, "print the server's mark, and what is acknowledged")
)

func main() {
	flag.Parse()
	if flag.NArg() != 1 || *producer == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := store(context.Background(), flag.Arg(0)); err != nil {
		fmt.Fprintf(os.Stderr, "store-lines: %s: %v\n", *to, err)
		os.Exit(1)
	}
}

func show(what string, id uint64) {
	if *progress {
		fmt.Println(what, id)
	}
}

func store(ctx context.Context, path string) error {
	levels := map[string]ingest.Level{"received": ingest.Received, "durable": ingest.Durable, "replicated": ingest.Replicated}
	config := ingest.ProducerConfig{Name: *producer, Stream: *stream, Token: *token, Level: levels[*level], Sparse: path != "-",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if *ca != "" {
		pem, err := os.ReadFile(*ca)
		if err != nil {
			return err
		}
		config.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		config.TLS.RootCAs.AppendCertsFromPEM(pem)
	}
	p, err := ingest.NewProducer(ctx, *to, config)
	if err != nil {
		return err
	}
	defer p.Abandon()
	mark, _ := p.Acknowledged()
	show("mark", mark)
	file := os.Stdin
	if path != "-" {
		if file, err = os.Open(path); err != nil {
			return err
		}
		defer file.Close()
		if _, err := file.Seek(int64(mark), io.SeekStart); err != nil {
			return err
		}
	}
	if err := lines(ctx, p, file, mark, path != "-"); err != nil {
		return err
	}
	if err := p.Close(ctx); err != nil {
		return err
	}
	last, _ := p.Acknowledged()
	show("acknowledged", last)
	return nil
}

func lines(ctx context.Context, p *ingest.Producer, file io.Reader, offset uint64, byOffset bool) error {
	reader := bufio.NewReaderSize(file, 1<<20)
	shown := offset
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF {
			return nil // What has no line break is not whole.
		}
		if err != nil {
			return err
		}
		offset += uint64(len(line))
		line = line[:len(line)-1]
		if byOffset {
			err = p.SendID(ctx, offset, line)
		} else {
			_, err = p.Send(ctx, line)
		}
		if err != nil {
			return err
		}
		if *progress {
			if id, ok := p.Acknowledged(); ok && id != shown {
				shown = id
				show("acknowledged", id)
			}
		}
	}
}
