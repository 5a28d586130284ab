// Echo on gnet: one event loop, and what came is written back from its buffer.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"
)

type echo struct {
	gnet.BuiltinEventEngine
	addr string
}

func (e *echo) OnBoot(gnet.Engine) gnet.Action {
	fmt.Printf("listening addr=%s\n", e.addr)
	return gnet.None
}

func (e *echo) OnTraffic(conn gnet.Conn) gnet.Action {
	bytes, _ := conn.Next(-1)
	conn.Write(bytes)
	return gnet.None
}

func main() {
	// It binds by itself, so the port has to be found before.
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	addr := free.Addr().String()
	free.Close()
	err = gnet.Run(&echo{addr: addr}, "tcp://"+addr, gnet.WithTCPNoDelay(gnet.TCPNoDelay))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
