// Prints the messages of a stream, a line each.
//
//	read-lines -to HOST:PORT [-stream NAME] [-cursor NAME] [-follow]
//
// With a cursor the server remembers how far this reader is: each run prints what came since. What was printed and not yet
// committed when the reader was killed is printed again.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log/slog"
	"os"

	ingest "github.com/tidewire/tidewire/clients/ingest/go"
)

var (
	to        = flag.String("to", "127.0.0.1:7400", "HOST:PORT, unix:/PATH or unix:@NAME")
	stream    = flag.String("stream", "", "the stream")
	cursor    = flag.String("cursor", "", "a name under which the server remembers how far this reader is")
	token     = flag.String("token", "", "a secret, where the server asks for one")
	ca        = flag.String("tls-ca", "", "speak TLS; the authorities of the server's certificate")
	follow    = flag.Bool("follow", false, "wait for more at the tail")
	positions = flag.Bool("positions", false, "print each message's position in front of it")
)

func main() {
	flag.Parse()
	if err := read(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "read-lines: %s: %v\n", *to, err)
		os.Exit(1)
	}
}

func read(ctx context.Context) error {
	config := ingest.ReaderConfig{Stream: *stream, Cursor: *cursor, Token: *token, Follow: *follow,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if *ca != "" {
		pem, err := os.ReadFile(*ca)
		if err != nil {
			return err
		}
		config.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		config.TLS.RootCAs.AppendCertsFromPEM(pem)
	}
	r, err := ingest.NewReader(ctx, *to, config)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	count := 0
	for record, err := range r.All(ctx) {
		if err != nil {
			out.Flush()
			return err
		}
		if *positions {
			fmt.Fprintf(out, "%d ", record.Position)
		}
		out.Write(record.Payload)
		out.WriteByte('\n')
		count++
		next := record.Position + 1
		if isTail := next >= r.Welcome().Next; count%100 == 0 || isTail {
			if err := out.Flush(); err != nil {
				return err
			}
			if *cursor != "" {
				if err := r.Commit(ctx, next); err != nil {
					return err
				}
			}
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return r.Close(ctx)
}
