package ingest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// program is the real server's; tests that need it are skipped without.
func program(t testing.TB) string {
	t.Helper()
	path := os.Getenv("TIDEWIRE")
	if path == "" {
		t.Skip("skipped: TIDEWIRE names no server's program")
	}
	return path
}

type server struct {
	addr    string
	process *exec.Cmd
}

func serve(t testing.TB, place, listen string, options ...string) *server {
	t.Helper()
	words := append([]string{"serve", "ingest", "--listen", "ingest=" + listen, "--data", filepath.Join(place, "data"),
		"--admin", "off", "--control", "off", "--workers", "1"}, options...)
	s := &server{process: exec.Command(program(t), words...)}
	errors := &bytes.Buffer{}
	s.process.Stderr = errors
	out, err := s.process.StdoutPipe()
	if err == nil {
		err = s.process.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	line, _ := bufio.NewReader(out).ReadString('\n')
	_, rest, ok := strings.Cut(line, " addr=")
	if !ok {
		s.kill()
		t.Fatalf("the server does not start: %s%s", line, errors)
	}
	s.addr = strings.Fields(rest)[0]
	return s
}

func (s *server) kill() {
	s.process.Process.Kill()
	s.process.Wait()
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func producer(t testing.TB, addr string, config ProducerConfig) *Producer {
	t.Helper()
	p, err := NewProducer(within(t), addr, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Abandon)
	return p
}

func payloads(t testing.TB, addr string, config ReaderConfig) []string {
	t.Helper()
	ctx := within(t)
	r, err := NewReader(ctx, addr, config)
	if err != nil {
		t.Fatal(err)
	}
	found := []string{}
	for record, err := range r.All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, string(record.Payload))
	}
	if config.Cursor != "" {
		if err := r.Commit(ctx, r.Welcome().Next); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return found
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t testing.TB, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d where %d were due", len(got), len(want))
	}
	for at := range got {
		if got[at] != want[at] {
			t.Fatalf("%v at %d, where %v was due", got[at], at, want[at])
		}
	}
}

func TestWhatIsSentIsRead(t *testing.T) {
	s, ctx := serve(t, t.TempDir(), "127.0.0.1:0"), within(t)
	p := producer(t, s.addr, ProducerConfig{Name: "p", Stream: "s"})
	id, err := p.Send(ctx, []byte("one"))
	ok(t, err)
	want := []string{"one"}
	var many [][]byte
	for n := range 1000 {
		many = append(many, fmt.Append(nil, n))
		want = append(want, fmt.Sprint(n))
	}
	first, err := p.SendBatch(ctx, many)
	ok(t, err)
	ok(t, p.Wait(ctx, 1))
	ok(t, p.Flush(ctx))
	last, _ := p.Acknowledged()
	equal(t, []uint64{id, first, last}, []uint64{1, 2, 1001})
	ok(t, p.Close(ctx))
	if _, err := p.Send(ctx, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	equal(t, payloads(t, s.addr, ReaderConfig{Stream: "s"}), want)
}

func TestAProducerGoesOnBehindItsMark(t *testing.T) {
	s, ctx := serve(t, t.TempDir(), "127.0.0.1:0"), within(t)
	for run := range uint64(3) {
		p := producer(t, s.addr, ProducerConfig{Name: "p", Sparse: true})
		if mark, has := p.Acknowledged(); mark != 10*run || has != (run > 0) {
			t.Errorf("%d %v", mark, has)
		}
		ok(t, p.SendID(ctx, 10*run+10, fmt.Append(nil, run)))
		var wrong *IDError
		if err := p.SendID(ctx, 10*run+10, nil); !errors.As(err, &wrong) {
			t.Error(err)
		}
		ok(t, p.Close(ctx))
	}
	equal(t, payloads(t, s.addr, ReaderConfig{}), []string{"0", "1", "2"})
}

func TestANewerProducerFencesTheOlder(t *testing.T) {
	s, ctx := serve(t, t.TempDir(), "127.0.0.1:0"), within(t)
	older := producer(t, s.addr, ProducerConfig{Name: "p"})
	older.Send(ctx, []byte("older"))
	ok(t, older.Flush(ctx))
	newer := producer(t, s.addr, ProducerConfig{Name: "p"})
	if id, err := newer.Send(ctx, []byte("newer")); id != 2 || err != nil {
		t.Error(id, err)
	}
	ok(t, newer.Flush(ctx))
	_, err := older.Send(ctx, []byte("late"))
	if err == nil {
		err = older.Flush(ctx)
	}
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Reason != Fenced {
		t.Error(err)
	}
}

func TestManyGoroutinesAndASmallBuffer(t *testing.T) {
	s, ctx := serve(t, t.TempDir(), "127.0.0.1:0"), within(t)
	p := producer(t, s.addr, ProducerConfig{Name: "p", BufferMessages: 5, WindowMessages: 3})
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 50 {
				if _, err := p.Send(ctx, []byte("x")); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	ok(t, p.Close(ctx))
	if n := len(payloads(t, s.addr, ReaderConfig{})); n != 400 {
		t.Error(n)
	}
}

func TestALevelThatIsNotGranted(t *testing.T) {
	s := serve(t, t.TempDir(), "127.0.0.1:0")
	var level *LevelError
	if _, err := NewProducer(within(t), s.addr, ProducerConfig{Name: "p", Level: Replicated}); !errors.As(err, &level) {
		t.Error(err)
	}
	p := producer(t, s.addr, ProducerConfig{Name: "p", Level: Replicated, AcceptLower: true})
	if p.Welcome().Level != Durable {
		t.Error(p.Welcome())
	}
}

func TestACursorIsKept(t *testing.T) {
	s, ctx := serve(t, t.TempDir(), "127.0.0.1:0"), within(t)
	p := producer(t, s.addr, ProducerConfig{Name: "p"})
	p.SendBatch(ctx, [][]byte{[]byte("0"), []byte("1"), []byte("2")})
	ok(t, p.Close(ctx))
	r, err := NewReader(ctx, s.addr, ReaderConfig{Cursor: "c"})
	ok(t, err)
	record, err := r.Read(ctx)
	ok(t, err)
	ok(t, r.Commit(ctx, record.Position+1))
	ok(t, r.Close(ctx))
	if _, err := r.Read(ctx); err != ErrClosed {
		t.Error(err)
	}
	equal(t, payloads(t, s.addr, ReaderConfig{Cursor: "c"}), []string{"1", "2"})
	equal(t, payloads(t, s.addr, ReaderConfig{Cursor: "c"}), []string{})
	equal(t, payloads(t, s.addr, ReaderConfig{Begin: Position(2)}), []string{"2"})
	equal(t, payloads(t, s.addr, ReaderConfig{Begin: Tail()}), []string{})
	equal(t, payloads(t, s.addr, ReaderConfig{Begin: Since(time.Now().Add(-time.Hour))}), []string{"0", "1", "2"})
	var refused *RefusedError
	if _, err := NewReader(ctx, s.addr, ReaderConfig{Begin: Position(4)}); !errors.As(err, &refused) || refused.ID != 3 {
		t.Error(err)
	}
}

func TestAFollowerWaits(t *testing.T) {
	s, ctx := serve(t, t.TempDir(), "127.0.0.1:0"), within(t)
	r, err := NewReader(ctx, s.addr, ReaderConfig{Follow: true})
	ok(t, err)
	defer r.Close(ctx)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := r.Read(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	p := producer(t, s.addr, ProducerConfig{})
	p.Send(ctx, []byte("now"))
	record, err := r.Read(ctx)
	ok(t, err)
	if string(record.Payload) != "now" {
		t.Error(record)
	}
}

func TestLargePayloadsAndLittleCredit(t *testing.T) {
	s, ctx := serve(t, t.TempDir(), "127.0.0.1:0"), within(t)
	p := producer(t, s.addr, ProducerConfig{Name: "p", WindowBytes: 1000})
	sizes := []int{0, 1, 100_000, 1_000_000, 5}
	for _, size := range sizes {
		_, err := p.Send(ctx, make([]byte, size))
		ok(t, err)
	}
	ok(t, p.Close(ctx))
	var found []int
	for _, payload := range payloads(t, s.addr, ReaderConfig{Credit: 1}) {
		found = append(found, len(payload))
	}
	equal(t, found, sizes)
}

func TestAServerThatStopsAndStarts(t *testing.T) {
	place, ctx := t.TempDir(), within(t)
	s := serve(t, place, "127.0.0.1:0")
	p := producer(t, s.addr, ProducerConfig{Name: "p", Retry: Retry{First: 10 * time.Millisecond}})
	p.Send(ctx, []byte("before"))
	ok(t, p.Flush(ctx))
	s.kill()
	p.Send(ctx, []byte("while it is away"))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := p.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	serve(t, place, s.addr)
	p.Send(ctx, []byte("after"))
	ok(t, p.Close(ctx))
	equal(t, payloads(t, s.addr, ReaderConfig{}), []string{"before", "while it is away", "after"})
}

func TestNothingListens(t *testing.T) {
	s, ctx := serve(t, t.TempDir(), "127.0.0.1:0"), within(t)
	s.kill()
	if _, err := NewProducer(ctx, s.addr, ProducerConfig{}); err == nil || !passing(err) {
		t.Error(err)
	}
	if _, err := NewReader(ctx, s.addr, ReaderConfig{Retry: Retry{AtFirst: true, Attempts: 2}}); err == nil {
		t.Error(err)
	}
}

func roundTrip(t *testing.T, addr, token string, config *tls.Config) {
	t.Helper()
	ctx := within(t)
	p := producer(t, addr, ProducerConfig{Name: "p", Token: token, TLS: config})
	p.Send(ctx, []byte("hello"))
	ok(t, p.Close(ctx))
	equal(t, payloads(t, addr, ReaderConfig{Cursor: "c", Token: token, TLS: config}), []string{"hello"})
	equal(t, payloads(t, addr, ReaderConfig{Cursor: "c", Token: token, TLS: config}), []string{})
}

func TestUnixSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	serve(t, t.TempDir(), "unix:"+path)
	roundTrip(t, "unix:"+path, "", nil)
}

func TestTokens(t *testing.T) {
	place := t.TempDir()
	config := filepath.Join(place, "tidewire.toml")
	text := fmt.Sprintf("[[ingest-tokens]]\nname = \"t\"\nsha256 = \"%x\"\nrights = [\"write\", \"read\"]\n", sha256.Sum256([]byte("a secret")))
	ok(t, os.WriteFile(config, []byte(text), 0o600))
	s := serve(t, place, "127.0.0.1:0", "--config", config)
	for _, token := range []string{"", "another"} {
		var refused *RefusedError
		if _, err := NewProducer(within(t), s.addr, ProducerConfig{Token: token}); !errors.As(err, &refused) ||
			refused.Reason != Unauthorised {
			t.Error(err)
		}
	}
	roundTrip(t, s.addr, "a secret", nil)
}

func TestTLS(t *testing.T) {
	place := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	ok(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ok(t, err)
	files := map[string][]byte{"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		"key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}
	for name, text := range files {
		ok(t, os.WriteFile(filepath.Join(place, name), text, 0o600))
	}
	s := serve(t, place, "127.0.0.1:0", "--tls-cert", filepath.Join(place, "cert.pem"), "--tls-key", filepath.Join(place, "key.pem"))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(files["cert.pem"])
	roundTrip(t, s.addr, "", &tls.Config{RootCAs: roots})
	// A certificate that is not trusted is final.
	if _, err := NewProducer(within(t), s.addr, ProducerConfig{TLS: &tls.Config{}, Retry: Retry{AtFirst: true}}); err == nil ||
		passing(err) {
		t.Error(err)
	}
	if _, err := NewProducer(within(t), s.addr, ProducerConfig{}); err == nil {
		t.Error("a server that speaks TLS answers a client that does not")
	}
}

// cuts carries connections to a server, and cuts each after some bytes, in the middle of whatever it is.
func cuts(t *testing.T, to string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for budget := int64(3000); ; budget = 3000 + budget*7919%50021 {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					io.CopyN(way[0], way[1], budget)
					near.Close()
					far.Close()
				}()
			}
		}
	}()
	return listener.Addr().String()
}

func TestNothingIsLostOrDoubledWhereConnectionsAreCut(t *testing.T) {
	s, ctx := serve(t, t.TempDir(), "127.0.0.1:0"), within(t)
	addr := cuts(t, s.addr)
	retry := Retry{First: time.Millisecond, Longest: 10 * time.Millisecond, AtFirst: true}
	p := producer(t, addr, ProducerConfig{Name: "p", Retry: retry})
	var want []string
	for n := range 5000 {
		want = append(want, fmt.Sprint(n))
		_, err := p.Send(ctx, []byte(want[n]))
		ok(t, err)
	}
	ok(t, p.Close(ctx))
	equal(t, payloads(t, s.addr, ReaderConfig{}), want)
	equal(t, payloads(t, addr, ReaderConfig{Retry: retry}), want)
	equal(t, payloads(t, addr, ReaderConfig{Retry: retry, Credit: 5000}), want)
}

func example(t *testing.T, name, stdin string, words ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", program, "./examples/"+name).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	command := exec.Command(program, words...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatal(string(exit.Stderr))
	}
	ok(t, err)
	return string(out)
}

func TestExamples(t *testing.T) {
	s := serve(t, t.TempDir(), "127.0.0.1:0")
	path := filepath.Join(t.TempDir(), "file")
	ok(t, os.WriteFile(path, []byte("one\n\nthree\nfour without its end"), 0o600))
	for range 2 {
		example(t, "store-lines", "", "-to", s.addr, "-producer", "p", path)
	}
	whole := "one\n\nthree\nfour without its end, which came\nfive\n"
	ok(t, os.WriteFile(path, []byte(whole), 0o600))
	example(t, "store-lines", "", "-to", s.addr, "-producer", "p", path)
	equal(t, []string{example(t, "read-lines", "", "-to", s.addr, "-cursor", "c"), example(t, "read-lines", "", "-to", s.addr, "-cursor", "c")},
		[]string{whole, ""})
	example(t, "store-lines", "six\n", "-to", s.addr, "-producer", "q", "-stream", "other", "-")
	equal(t, []string{example(t, "read-lines", "", "-to", s.addr, "-stream", "other", "-positions")}, []string{"0 six\n"})
}
