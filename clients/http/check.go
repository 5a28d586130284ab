// Go's net/http against `tidewire serve http`: go run check.go HOST PORT [https]. The authority to trust is then in
// SSL_CERT_FILE=AUTHORITY.pem.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync"
	"time"
)

func main() {
	scheme := "http"
	if len(os.Args) > 3 {
		scheme = os.Args[3]
	}
	base := scheme + "://" + os.Args[1] + ":" + os.Args[2]
	client := &http.Client{Timeout: 30 * time.Second}
	read := func(reply *http.Response, err error) []byte {
		if err != nil {
			log.Fatal(err)
		}
		defer reply.Body.Close()
		body, err := io.ReadAll(reply.Body)
		if err != nil || reply.StatusCode != 200 {
			log.Fatal(reply.Status, err)
		}
		return body
	}
	for n := 0; n < 100; n++ {
		if body := read(client.Get(fmt.Sprintf("%s/bytes/%d", base, n))); len(body) != n {
			log.Fatalf("%d bytes instead of %d", len(body), n)
		}
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 50000)
	if !bytes.Equal(read(client.Post(base+"/echo", "text/plain", bytes.NewReader(body))), body) {
		log.Fatal("another body")
	}
	// A reader of unknown length is sent in chunks, with a trailer behind them.
	in, out := io.Pipe()
	go func() {
		for at := 0; at < len(body); at += 4000 {
			out.Write(body[at : at+4000])
		}
		out.Close()
	}()
	asked, _ := http.NewRequest("PUT", base+"/echo", in)
	asked.Trailer = http.Header{"X-Behind": {"it"}}
	if !bytes.Equal(read(client.Do(asked)), body) {
		log.Fatal("another body in chunks")
	}
	// Waits for the word to go on.
	asked, _ = http.NewRequest("POST", base+"/echo", bytes.NewReader(body))
	asked.Header.Set("Expect", "100-continue")
	told := false
	trace := &httptrace.ClientTrace{Got100Continue: func() { told = true }}
	asked = asked.WithContext(httptrace.WithClientTrace(asked.Context(), trace))
	waits := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 20 * time.Second}}
	if !bytes.Equal(read(waits.Do(asked)), body) || !told {
		log.Fatal("not told to go on")
	}
	var all sync.WaitGroup
	for worker := 0; worker < 20; worker++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; n < 50; n++ {
				read(client.Get(base + "/"))
			}
		}()
	}
	all.Wait()
	fmt.Println("good")
}
