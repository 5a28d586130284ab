// Echo on Go's net: a goroutine for each connection. The argument, if there is one, is on how many cores they run.
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
)

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
		go func() {
			defer conn.Close()
			buffer := make([]byte, 64*1024)
			for {
				n, err := conn.Read(buffer)
				if err != nil {
					return
				}
				if _, err := conn.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
	}
}
