package ingest

import (
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every frame that a producer or a reader may be sent, or sends, as docs/formats/protocol-vectors.txt has it. Administration is
// no matter of these clients.
func vectors(t *testing.T, direction string, each func(name string, raw []byte, fields string)) int {
	t.Helper()
	text, err := os.ReadFile("../../../docs/formats/protocol-vectors.txt")
	if err != nil {
		t.Skip("skipped: the vectors are not here: ", err)
	}
	seen := 0
	for _, line := range strings.Split(string(text), "\n") {
		parts := strings.SplitN(line, " ", 4)
		if line == "" || line[0] == '#' || parts[1] != direction {
			continue
		}
		raw, err := hex.DecodeString(parts[2])
		if err != nil {
			t.Fatal(err)
		}
		isAdministration := false
		for _, prefix := range []string{"frame=admin-welcome", "frame=stream", "frame=place", "frame=done", "hello=administer"} {
			isAdministration = isAdministration || strings.HasPrefix(parts[3], prefix)
		}
		if !isAdministration {
			each(parts[0], raw, parts[3])
			seen++
		}
	}
	return seen
}

func is(name string, set bool) string {
	if set {
		return " " + name + "=true"
	}
	return ""
}

func shown(frame any) string {
	switch f := frame.(type) {
	case Welcome:
		last := "none"
		if f.HasLastID {
			last = strconv.FormatUint(f.LastID, 10)
		}
		return fmt.Sprintf("frame=welcome level=%v payload_max=%d window_messages=%d keepalive_ms=%d window_bytes=%d last_id=%s%s",
			f.Level, f.PayloadMax, f.WindowMessages, f.KeepaliveMS, f.WindowBytes, last, is("forgotten", f.Forgotten))
	case ack:
		why := ""
		if f.why != "" {
			why = fmt.Sprintf(" why=%q", f.why)
		}
		return fmt.Sprintf("frame=ack id=%d keep_alive=%v%s", f.id, f.keepAlive, why)
	case refusal:
		return fmt.Sprintf("frame=refusal id=%d reason=%s retry_after_ms=%d text=%q closes=%v", f.ID,
			strings.ReplaceAll(f.Reason.String(), " ", "-"), f.RetryAfter.Milliseconds(), f.Text, f.closes)
	case ReaderWelcome:
		return fmt.Sprintf("frame=reader-welcome first=%d next=%d start=%d body_max=%d%s", f.First, f.Next, f.Start, f.BodyMax,
			is("skipped", f.Skipped))
	case batch:
		return fmt.Sprintf("frame=batch first=%d timestamp_us=%d count=%d producer=%q messages=%x", f.first, f.timestampUS, f.count,
			f.producer, f.messages)
	case end:
		return fmt.Sprintf("frame=end next=%d%s", f.next, is("short", f.short))
	}
	return fmt.Sprintf("frame=unknown kind=%d", frame.(unknown).kind)
}

func TestFramesOfTheServer(t *testing.T) {
	seen := vectors(t, "server", func(name string, raw []byte, fields string) {
		frame, size, err := decode(raw, 1<<20)
		if fields == "malformed" {
			if raw[0] < 7 && err == nil {
				t.Errorf("%s: %v", name, frame)
			}
			return
		}
		if err != nil || size != len(raw) || shown(frame) != fields {
			t.Errorf("%s: %v, %d bytes, %v", name, err, size, shown(frame))
		}
		for cut := range raw {
			if _, size, err := decode(raw[:cut], 1<<20); size != 0 || err != nil {
				t.Errorf("%s cut to %d: %d bytes, %v", name, cut, size, err)
			}
		}
	})
	if seen < 50 {
		t.Errorf("%d vectors", seen)
	}
}

var field = regexp.MustCompile(`(\w+)=(?:"([^"]*)"|(\S*))`)

func TestHellos(t *testing.T) {
	seen := vectors(t, "hello", func(name string, raw []byte, fields string) {
		if fields == "malformed" {
			return
		}
		has := map[string]string{}
		for _, match := range field.FindAllStringSubmatch(fields, -1) {
			has[match[1]] = match[2] + match[3]
		}
		number := func(name string) uint64 {
			n, err := strconv.ParseUint(has[name], 10, 64)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return n
		}
		var made []byte
		var err error
		if has["hello"] == "produce" {
			levels := map[string]Level{"default": 0, "received": Received, "durable": Durable, "replicated": Replicated}
			p := produce{levels[has["level"]], has["sparse"] == "true", has["adopt"] == "true", uint32(number("window_messages")),
				number("window_bytes"), number("first_id"), has["stream"], has["producer"], has["token"]}
			made, err = p.encode()
		} else {
			kind, at, _ := strings.Cut(has["begin"], ":")
			begin := map[string]Begin{"position": Position(0), "tail": Tail(), "timestamp": {kind: 3}, "cursor": Cursor()}[kind]
			if at != "" {
				begin.at, _ = strconv.ParseUint(at, 10, 64)
			}
			s := subscribe{begin, has["follow"] == "true", has["may_be_absent"] == "true", number("credit"), has["stream"],
				has["cursor"], has["token"]}
			made, err = s.encode()
		}
		if err != nil || string(made) != string(raw) {
			t.Errorf("%s: %v %x", name, err, made)
		}
	})
	if seen < 40 {
		t.Errorf("%d vectors", seen)
	}
}

func TestFramesOfAReader(t *testing.T) {
	vectors(t, "reader", func(name string, raw []byte, fields string) {
		kind := map[string]uint8{"credit": 1, "commit-cursor": 2}[name]
		if kind == 0 {
			return
		}
		_, number, _ := strings.Cut(fields[len("frame="):], "=")
		value, _ := strconv.ParseUint(number, 10, 64)
		if made := readerFrame(nil, kind, value); string(made) != string(raw) {
			t.Errorf("%s: %x", name, made)
		}
	})
}
