package ingest

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

func ids(data []byte) []uint64 {
	var found []uint64
	for len(data) > 0 {
		found = append(found, le.Uint64(data))
		data = data[messageHeader+int(le.Uint32(data[8:])):]
	}
	return found
}

type pushed struct {
	id   uint64
	size int
}

// The resend buffer against a list of messages, by random steps.
func TestOutboxIsAList(t *testing.T) {
	for seed := range uint64(300) {
		chance := rand.New(rand.NewPCG(seed, 0))
		var o outbox
		var model []pushed
		sent, next := 0, uint64(1)
		for range 80 {
			switch chance.IntN(5) {
			case 0, 1:
				for range chance.IntN(6) {
					size := chance.IntN(40)
					if chance.IntN(10) == 0 {
						size = chance.IntN(2 * blockSize)
					}
					o.push(next, make([]byte, size))
					model = append(model, pushed{next, messageHeader + size})
					next += 1 + uint64(chance.IntN(3))
				}
			case 2:
				messages, bytes := 1+chance.IntN(12), 1+chance.IntN(2*blockSize)
				if chance.IntN(2) == 0 {
					o.recycle()
				}
				data, last := o.next(messages, bytes)
				for _, id := range ids(data) {
					if sent >= len(model) || model[sent].id != id {
						t.Fatalf("seed %d: %d was written, out of turn", seed, id)
					}
					sent++
				}
				inFlight := 0
				for _, m := range model[:sent] {
					inFlight += m.size
				}
				if len(data) > 0 && (model[sent-1].id != last || (sent > 1 && (sent > messages || inFlight > bytes))) {
					t.Fatalf("seed %d: last %d, %d in flight, %d bytes", seed, last, sent, inFlight)
				}
			case 3:
				if len(model) == 0 {
					continue
				}
				// Also beyond what was sent, as a welcome may say, and between two ids.
				at := chance.IntN(len(model))
				id := model[at].id
				gone := at + 1
				if dropped := o.acknowledged(id); dropped != gone {
					t.Fatalf("seed %d: %d dropped, %d were due", seed, dropped, gone)
				}
				model, sent = model[gone:], max(sent-gone, 0)
			case 4:
				if sent == 0 {
					continue
				}
				at := chance.IntN(sent)
				o.rewind(model[at].id)
				sent = at
			}
			var bytes, sentBytes int
			for at, m := range model {
				bytes += m.size
				if at < sent {
					sentBytes += m.size
				}
			}
			first, ok := o.firstID()
			if o.messages != len(model) || o.bytes != bytes || o.sentMessages != sent || o.sentBytes != sentBytes ||
				ok != (len(model) > 0) || (ok && first != model[0].id) {
				t.Fatalf("seed %d: %d messages of %d bytes, sent %d of %d, first %d; %d of %d, %d of %d were due", seed, o.messages,
					o.bytes, o.sentMessages, o.sentBytes, first, len(model), bytes, sent, sentBytes)
			}
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, good := range []string{"logs.example:7400", "[::1]:7400", "unix:/run/x.sock", "unix:@name"} {
		if a, err := parseAddress(good); err != nil || a.String() != good {
			t.Errorf("%s: %v %v", good, a, err)
		}
	}
	for _, bad := range []string{"", "host", ":7400", "host:x", "host:65536", "::1:7400", "unix:", "unix:@", "unix:relative"} {
		if a, err := parseAddress(bad); err == nil {
			t.Errorf("%s: %v", bad, a)
		}
	}
}

func TestPausesDoubleToTheLongestAndEndInTime(t *testing.T) {
	a, err := newAttempts("a:1", Retry{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.pauseAfter(ErrServerClosed, 0); err != ErrServerClosed {
		t.Errorf("the first failure is final: %v", err)
	}
	a.succeeded()
	for _, whole := range []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		whole *= time.Millisecond
		if pause, err := a.pauseAfter(ErrServerClosed, 0); err != nil || pause < whole/2 || pause > whole {
			t.Errorf("%v of %v: %v", pause, whole, err)
		}
	}
	late := &RefusedError{Reason: DiskFull, RetryAfter: time.Hour}
	if pause, err := a.pauseAfter(late, 50*time.Second); err != nil || pause != 10*time.Second {
		t.Errorf("%v: %v", pause, err)
	}
	var gaveUp *GaveUpError
	if _, err := a.pauseAfter(late, time.Minute); !errors.As(err, &gaveUp) || !errors.Is(err, late) {
		t.Errorf("%v", err)
	}
	if _, err := a.pauseAfter(&RefusedError{Reason: Unauthorised}, 0); err == nil {
		t.Error("a refusal for good is final")
	}
}

func TestAServerThatIsNamedIsAskedInTurnWithTheFirst(t *testing.T) {
	a, _ := newAttempts("a:1", Retry{Moves: 2}, nil)
	a.succeeded()
	moved := func(to string) { a.pauseAfter(&RefusedError{Reason: Moved, Text: to}, 0) }
	for _, step := range []struct{ to, at string }{{"b:1", "b:1"}, {"c:1", "c:1"}, {"d:1", "a:1"}, {"unix:/x", "c:1"}, {"", "a:1"}} {
		if moved(step.to); a.address().String() != step.at {
			t.Errorf("moved to %q: at %v", step.to, a.address())
		}
	}
}

func TestSettingsThatCannotBeSent(t *testing.T) {
	ctx := t.Context()
	for _, bad := range []ProducerConfig{{Stream: "a\nb"}, {Name: string(make([]byte, 256))}, {Token: "\xff"}} {
		if _, err := NewProducer(ctx, "127.0.0.1:1", bad); err == nil || passing(err) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, bad := range []ReaderConfig{{Wait: true}, {Begin: Cursor()}, {Cursor: "a\u0085"}} {
		if _, err := NewReader(ctx, "127.0.0.1:1", bad); err == nil || passing(err) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
