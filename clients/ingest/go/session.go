package ingest

import (
	"math"
	"time"
)

// late is for how long after a connection began the server may still read its hello.
const late = 15 * time.Minute

type phase uint8

const (
	offline phase = iota
	// greeting: the hello is to be handed out.
	greeting
	// waiting: the server owes its welcome.
	waiting
	open
	// holding: the server refused messages for now; they are sent again then.
	holding
)

// session is one producer's conversation with a server, over as many connections as it takes: a state machine without socket
// and clock. A message has its id, and stands in the resend buffer, before a byte of it is written.
type session struct {
	wants  *ProducerConfig
	outbox outbox
	phase  phase

	granted    Welcome
	wasGranted bool
	nextID     uint64
	noMoreIDs  bool
	// settled: all messages up to here are, if hasSettled.
	settled    uint64
	hasSettled bool
	// handedOut is the highest id handed out on this connection, if hasHandedOut.
	handedOut    uint64
	hasHandedOut bool
	heard        time.Time
	holdUntil    time.Time
	// unanswered counts hellos without an answer while their connections lasted. The server may read them yet.
	unanswered     int
	lastUnanswered time.Time
}

// news is what some received bytes said.
type news struct {
	welcomed     bool
	acknowledged int
	waitsFor     string
	refused      *RefusedError
}

// check says whether a payload may have this id.
func (s *session) check(id uint64, size int) error {
	if s.noMoreIDs {
		return ErrNoMoreIDs
	}
	if id < s.nextID || (id > s.nextID && !s.wants.Sparse) {
		return &IDError{id, s.nextID}
	}
	if uint64(size) > uint64(s.granted.PayloadMax) {
		return &MessageTooLargeError{size, int(s.granted.PayloadMax)}
	}
	return nil
}

// push takes a message that was checked.
func (s *session) push(id uint64, payload []byte) {
	s.outbox.push(id, payload)
	s.nextID, s.noMoreIDs = id+1, id == math.MaxUint64
}

func (s *session) hasRoom(messages, bytes int) bool {
	o := &s.outbox
	return o.messages == 0 || (o.messages+messages <= s.wants.BufferMessages && o.bytes+bytes <= s.wants.BufferBytes)
}

func (s *session) connected(now time.Time) {
	s.disconnected()
	s.phase, s.heard = greeting, now
}

// disconnected: what was handed out and not acknowledged is handed out again on the next connection.
func (s *session) disconnected() {
	if s.phase == waiting {
		s.unanswered++
		s.lastUnanswered = s.heard
	}
	s.phase = offline
	s.outbox.rewind(0)
	s.hasHandedOut = false
}

func (s *session) awaitsWelcome() bool { return s.phase == greeting || s.phase == waiting }

func (s *session) hello() ([]byte, error) {
	first, ok := s.outbox.firstID()
	switch {
	case ok:
	case !s.wasGranted:
		first = s.wants.FirstID
	case s.noMoreIDs:
		first = math.MaxUint64
	default:
		first = s.nextID
	}
	// At level received the server may have lost, in a crash, what it acknowledged.
	p := produce{level: s.wants.Level, sparse: s.wants.Sparse, adopt: s.wasGranted && s.wants.Level == Received,
		windowMessages: s.wants.WindowMessages, windowBytes: s.wants.WindowBytes, firstID: first, stream: s.wants.Stream,
		producer: s.wants.Name, token: s.wants.Token}
	return p.encode()
}

func smaller(wanted, granted uint64) int {
	if wanted != 0 && wanted < granted {
		granted = wanted
	}
	return int(min(granted, math.MaxInt64))
}

// output appends what is to be written next. What it answered before is written.
func (s *session) output(to [][]byte, now time.Time) [][]byte {
	s.outbox.recycle()
	if s.phase == greeting {
		s.phase = waiting
		hello, err := s.hello()
		if err != nil {
			panic(err) // Checked when the producer was made.
		}
		return append(to, hello)
	}
	if s.phase != open {
		return to
	}
	messages := smaller(uint64(s.wants.WindowMessages), uint64(s.granted.WindowMessages))
	bytes := smaller(s.wants.WindowBytes, s.granted.WindowBytes)
	waited := s.outbox.sentMessages > 0
	for total := 0; total < 256<<10; {
		data, last := s.outbox.next(messages, bytes)
		if len(data) == 0 {
			break
		}
		to = append(to, data)
		total += len(data)
		s.handedOut, s.hasHandedOut = last, true
		if !waited {
			s.heard = now
		}
	}
	return to
}

// received takes whole frames off the front of data; how many bytes they had.
func (s *session) received(data []byte, now time.Time, n *news) (int, error) {
	s.heard = now
	done := 0
	for {
		frame, size, err := decode(data[done:], bodyMax)
		if err != nil || size == 0 {
			return done, err
		}
		done += size
		if err := s.frame(frame, now, n); err != nil {
			return done, err
		}
	}
}

func (s *session) frame(frame any, now time.Time, n *news) error {
	greeted := s.phase == open || s.phase == holding
	switch f := frame.(type) {
	case unknown:
		return nil
	case ack:
		if greeted && f.keepAlive {
			n.waitsFor = f.why
			return nil
		}
		if greeted {
			return s.acknowledged(f.id, n)
		}
	case refusal:
		if f.closes {
			s.phase = offline
			return s.refusedForGood(f, now)
		}
		if greeted {
			n.refused = &f.RefusedError
			return s.refused(f, now)
		}
	case Welcome:
		if s.phase == waiting {
			n.welcomed = true
			return s.welcome(f)
		}
	}
	return ProtocolError("a frame is out of its place")
}

func (s *session) refusedForGood(f refusal, now time.Time) error {
	// A newer session of this producer may be one of this client's own, begun by a hello that was read late. Each such hello
	// excuses one refusal.
	if f.Reason == Fenced && s.unanswered > 0 && now.Sub(s.lastUnanswered) <= late {
		s.unanswered--
		return ErrOvertaken
	}
	return &f.RefusedError
}

func (s *session) welcome(w Welcome) error {
	if w.Level < s.wants.Level && !s.wants.AcceptLower {
		return &LevelError{s.wants.Level, w.Level}
	}
	if w.Forgotten && !s.wants.AcceptDuplicates {
		return ErrForgotten
	}
	if !s.wasGranted {
		s.nextID = s.wants.FirstID
		if w.HasLastID {
			s.nextID, s.noMoreIDs = w.LastID+1, w.LastID == math.MaxUint64
		}
		s.settled, s.hasSettled = w.LastID, w.HasLastID
	} else if s.wants.Name != "" {
		if err := s.resume(w); err != nil {
			return err
		}
	}
	s.granted, s.wasGranted = w, true
	s.phase = open
	return nil
}

func (s *session) resume(w Welcome) error {
	if w.HasLastID && !s.noMoreIDs && w.LastID >= s.nextID {
		return &NameTakenError{max(s.nextID, 1) - 1, w.LastID}
	}
	lost := s.hasSettled && (!w.HasLastID || w.LastID < s.settled)
	if lost && s.wants.Level >= Durable && !w.Forgotten {
		return &LostError{s.settled, w.LastID, w.HasLastID}
	}
	if w.HasLastID {
		s.outbox.acknowledged(w.LastID)
		s.settled, s.hasSettled = max(s.settled, w.LastID), true
	}
	return nil
}

func (s *session) acknowledged(id uint64, n *news) error {
	if s.hasSettled && id <= s.settled {
		return nil
	}
	if !s.hasHandedOut || id > s.handedOut {
		return ProtocolError("it acknowledged a message that was not sent")
	}
	s.settled, s.hasSettled = id, true
	n.acknowledged += s.outbox.acknowledged(id)
	return nil
}

func (s *session) refused(f refusal, now time.Time) error {
	if !s.hasHandedOut || f.ID > s.handedOut || (s.hasSettled && f.ID <= s.settled) || f.Reason == Malformed {
		return ProtocolError("it refused a message that was not waiting")
	}
	s.outbox.rewind(f.ID)
	s.phase, s.holdUntil = holding, now.Add(f.RetryAfter)
	return nil
}

// deadline is when expired is to be called, if nothing is received before.
func (s *session) deadline() (time.Time, bool) {
	switch {
	case s.phase == holding:
		return s.holdUntil, true
	case s.awaitsWelcome() || (s.phase == open && s.outbox.sentMessages > 0):
		return s.heard.Add(s.wants.Silence), true
	}
	return time.Time{}, false
}

func (s *session) expired(now time.Time) error {
	at, ok := s.deadline()
	if !ok || now.Before(at) {
		return nil
	}
	if s.phase == holding {
		s.phase, s.heard = open, now
		return nil
	}
	return ErrUnanswered
}

func milliseconds(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }
