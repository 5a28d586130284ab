// Asynchronous acknowledgements on Go's net: a goroutine that reads and one that answers for each connection, a channel
// between them. The argument, if there is one, is on how many cores they run.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"
)

const (
	chunks = 22
	delay  = 5 * time.Millisecond
)

// What a chunk has completed.
type taken struct {
	id    [8]byte
	count uint32
}

// Counts the reads that a message takes, so that acknowledgements can go by chunks.
type reads struct {
	net.Conn
	told func()
}

func (r reads) Read(p []byte) (int, error) {
	r.told()
	return r.Conn.Read(p)
}

func main() {
	if len(os.Args) > 1 {
		cores, err := strconv.Atoi(os.Args[1])
		if err != nil {
			panic(err)
		}
		runtime.GOMAXPROCS(cores)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("listening addr=%s\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		channel := make(chan taken, 64)
		go read(conn, channel)
		go answer(conn, channel)
	}
}

func read(conn net.Conn, channel chan<- taken) {
	defer close(channel)
	var now taken
	input := bufio.NewReaderSize(reads{conn, func() {
		// All that the last chunk held has been looked at.
		if now.count > 0 {
			channel <- now
			now = taken{}
		}
	}}, 64*1024)
	var head [12]byte
	for {
		if _, err := io.ReadFull(input, head[:]); err != nil {
			return
		}
		if _, err := input.Discard(int(binary.LittleEndian.Uint32(head[8:]))); err != nil {
			return
		}
		copy(now.id[:], head[:8])
		now.count++
	}
}

func answer(conn net.Conn, channel <-chan taken) {
	defer conn.Close()
	timer := time.NewTimer(delay)
	for owed := range channel {
		timer.Reset(delay)
	gather:
		for n := 1; n < chunks; n++ {
			select {
			case more, ok := <-channel:
				if !ok {
					break gather
				}
				owed.id = more.id
				owed.count += more.count
				timer.Reset(delay)
			case <-timer.C:
				break gather
			}
		}
		var reply [12]byte
		copy(reply[:], owed.id[:])
		binary.LittleEndian.PutUint32(reply[8:], owed.count-1)
		if _, err := conn.Write(reply[:]); err != nil {
			return
		}
	}
}
