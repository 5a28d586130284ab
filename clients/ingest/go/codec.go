package ingest

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode"
	"unicode/utf8"
)

const (
	messageHeader = 12
	frameHeader   = 8
	// bodyMax is the largest body of any frame but a batch.
	bodyMax = 1024
)

var le = binary.LittleEndian

// Welcome is what the server grants a producer.
type Welcome struct {
	Level          Level
	PayloadMax     uint32
	WindowMessages uint32
	KeepaliveMS    uint32
	WindowBytes    uint64
	// LastID is the producer's mark, if HasLastID: the highest id that the server has taken.
	LastID    uint64
	HasLastID bool
	// Forgotten says that the producer was known and has been forgotten.
	Forgotten bool
}

// ReaderWelcome is what the server has of a stream.
type ReaderWelcome struct {
	// First is the oldest position kept, Next one past the last, Start where reading begins.
	First, Next, Start uint64
	BodyMax            uint32
	// Skipped says that records between what was asked for and Start have been removed.
	Skipped bool
}

type ack struct {
	id        uint64
	keepAlive bool
	why       string
}

type refusal struct {
	RefusedError
	closes bool
}

type batch struct {
	first       uint64
	timestampUS uint64
	count       uint32
	producer    string
	messages    []byte
}

type end struct {
	next  uint64
	short bool
}

type unknown struct{ kind uint8 }

func putString(to []byte, field, text string, isName bool) ([]byte, error) {
	if len(text) > math.MaxUint8 {
		return nil, fmt.Errorf("%s has %d bytes; at most 255 can be sent", field, len(text))
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("%s is not UTF-8", field)
	}
	for _, r := range text {
		if isName && unicode.IsControl(r) {
			return nil, fmt.Errorf("%s has control characters: %q", field, text)
		}
	}
	return append(append(to, byte(len(text))), text...), nil
}

func hello(kind uint8, fixed []byte, stream, nameField, name, token string) ([]byte, error) {
	out := append([]byte("TIDE\x01"), kind, 0, 0)
	out = append(out, fixed...)
	var err error
	if out, err = putString(out, "the stream", stream, true); err != nil {
		return nil, err
	}
	if out, err = putString(out, nameField, name, true); err != nil {
		return nil, err
	}
	if out, err = putString(out, "the token", token, false); err != nil {
		return nil, err
	}
	le.PutUint16(out[6:], uint16(len(out)-frameHeader))
	return out, nil
}

func flag(bit uint8, set bool) uint8 {
	if set {
		return bit
	}
	return 0
}

type produce struct {
	level                   Level
	sparse, adopt           bool
	windowMessages          uint32
	windowBytes, firstID    uint64
	stream, producer, token string
}

func (p *produce) encode() ([]byte, error) {
	fixed := []byte{byte(p.level), flag(1, p.sparse) | flag(2, p.adopt), 0, 0}
	fixed = le.AppendUint32(fixed, p.windowMessages)
	fixed = le.AppendUint64(fixed, p.windowBytes)
	fixed = le.AppendUint64(fixed, p.firstID)
	return hello(1, fixed, p.stream, "the producer's name", p.producer, p.token)
}

type subscribe struct {
	begin                 Begin
	follow, mayBeAbsent   bool
	credit                uint64
	stream, cursor, token string
}

func (s *subscribe) encode() ([]byte, error) {
	fixed := []byte{s.begin.kind, flag(1, s.follow) | flag(2, s.mayBeAbsent), 0, 0}
	fixed = le.AppendUint64(fixed, s.credit)
	fixed = le.AppendUint64(fixed, s.begin.at)
	return hello(2, fixed, s.stream, "the cursor", s.cursor, s.token)
}

// readerFrame is a credit (kind 1) or a cursor's new place (kind 2).
func readerFrame(to []byte, kind uint8, value uint64) []byte {
	to = append(to, kind, 0, 0, 0, 8, 0, 0, 0)
	return le.AppendUint64(to, value)
}

// fields cuts fields off the front of a body.
type fields struct {
	rest []byte
	bad  string
}

func (f *fields) take(n int) []byte {
	if len(f.rest) < n {
		f.bad = "too short for its fields"
		f.rest = nil
		return make([]byte, n)
	}
	taken := f.rest[:n]
	f.rest = f.rest[n:]
	return taken
}

func (f *fields) u16() uint16 { return le.Uint16(f.take(2)) }
func (f *fields) u32() uint32 { return le.Uint32(f.take(4)) }
func (f *fields) u64() uint64 { return le.Uint64(f.take(8)) }

func (f *fields) text() string {
	text := f.take(int(f.take(1)[0]))
	if !utf8.Valid(text) {
		f.bad = "has a string that is not UTF-8"
	}
	return string(text)
}

// decode reads the frame at the front of data, and says how long it is; 0 if it is not whole. A batch points into data.
func decode(data []byte, most int) (any, int, error) {
	if len(data) < frameHeader {
		return nil, 0, nil
	}
	kind, flags, size := data[0], data[1], le.Uint32(data[4:])
	if uint64(size) > uint64(most) {
		return nil, 0, ProtocolError(fmt.Sprintf("a frame of %d bytes is too long: at most %d are allowed", size, most))
	}
	whole := frameHeader + int(size)
	if len(data) < whole {
		return nil, 0, nil
	}
	f := fields{rest: data[frameHeader:whole]}
	var frame any
	switch kind {
	case 1:
		level := Level(f.take(4)[0])
		w := Welcome{Level: level, PayloadMax: f.u32(), WindowMessages: f.u32(), KeepaliveMS: f.u32(), WindowBytes: f.u64(),
			LastID: f.u64(), HasLastID: flags&1 != 0, Forgotten: flags&2 != 0}
		if !w.HasLastID {
			w.LastID = 0
		}
		if level < Received || level > Replicated {
			f.bad = fmt.Sprintf("grants level %d, which there is not", level)
		}
		frame = w
	case 2:
		a := ack{id: f.u64(), keepAlive: flags&1 != 0}
		if a.keepAlive && len(f.rest) > 0 {
			a.why = f.text()
		}
		frame = a
	case 3:
		r := refusal{closes: flags&1 != 0}
		r.ID, r.Reason = f.u64(), Reason(f.u16())
		f.u16()
		r.RetryAfter = milliseconds(f.u32())
		r.Text = f.text()
		frame = r
	case 4:
		w := ReaderWelcome{First: f.u64(), Next: f.u64(), Start: f.u64(), BodyMax: f.u32(), Skipped: flags&1 != 0}
		f.u32()
		frame = w
	case 5:
		b := batch{first: f.u64(), timestampUS: f.u64(), count: f.u32(), producer: f.text()}
		b.messages = f.rest
		frame = b
	case 6:
		frame = end{next: f.u64(), short: flags&1 != 0}
	default:
		frame = unknown{kind}
	}
	if f.bad != "" {
		return nil, 0, ProtocolError(fmt.Sprintf("a frame of kind %d %s", kind, f.bad))
	}
	return frame, whole, nil
}
