package ingest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Level is what an acknowledgement means.
type Level uint8

const (
	// Received is handed to the log's queue: a crash of the server may lose it.
	Received Level = 1
	// Durable is committed: synced to the server's disk.
	Durable Level = 2
	// Replicated is committed, and stored at the home of the server's log.
	Replicated Level = 3
)

func (l Level) String() string {
	switch l {
	case Received:
		return "received"
	case Durable:
		return "durable"
	case Replicated:
		return "replicated"
	}
	return "level " + strconv.Itoa(int(l))
}

// Reason is why a server refuses.
type Reason uint16

// The reasons of version 1 of the protocol. A server may give others.
const (
	Malformed Reason = iota + 1
	TooLarge
	DiskFull
	OverQuota
	OutOfOrder
	Fenced
	Unauthorised
	LogFailed
	Stopping
	TooMany
	Gone
	Damaged
	BeyondTheEnd
	NoSuchStream
	TooSlow
	StreamFull
	Exists
	Unsupported
	NoSuchCursor
	Moved
)

var reasonNames = [...]string{Malformed: "malformed", TooLarge: "too large", DiskFull: "disk full", OverQuota: "over quota",
	OutOfOrder: "out of order", Fenced: "fenced", Unauthorised: "unauthorised", LogFailed: "log failed", Stopping: "stopping",
	TooMany: "too many", Gone: "gone", Damaged: "damaged", BeyondTheEnd: "beyond the end", NoSuchStream: "no such stream",
	TooSlow: "too slow", StreamFull: "stream full", Exists: "exists", Unsupported: "unsupported",
	NoSuchCursor: "no such cursor", Moved: "moved"}

func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return "reason " + strconv.Itoa(int(r))
}

// RefusedError says that the server refused, and closed the connection.
type RefusedError struct {
	Reason Reason
	// ID is the first message refused, or the position of a reader; 0 for a hello.
	ID uint64
	// Text is what the server said about it, for people.
	Text string
	// RetryAfter is when a new attempt is worth while; 0 if the server did not say.
	RetryAfter time.Duration
}

func (e *RefusedError) Error() string {
	if e.Text == "" || e.Text == e.Reason.String() {
		return "the server refused: " + e.Reason.String()
	}
	return "the server refused: " + e.Reason.String() + ": " + printable(e.Text)
}

// printable escapes what a terminal would obey.
func printable(text string) string {
	quoted := strconv.QuoteToGraphic(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// LevelError says that the server grants less than was asked for; see [ProducerConfig.AcceptLower].
type LevelError struct{ Wanted, Granted Level }

func (e *LevelError) Error() string {
	return fmt.Sprintf("the server grants level %v only, %v was asked for", e.Granted, e.Wanted)
}

// LostError says that the server no longer has messages that it acknowledged.
type LostError struct {
	Acknowledged uint64
	// Mark is the last message that the server has, if HasMark.
	Mark    uint64
	HasMark bool
}

func (e *LostError) Error() string {
	after := "the beginning"
	if e.HasMark {
		after = strconv.FormatUint(e.Mark, 10)
	}
	return fmt.Sprintf("messages were acknowledged up to %d, but the server has lost those after %s", e.Acknowledged, after)
}

// NameTakenError says that another program sends under this producer's name.
type NameTakenError struct{ Sent, Mark uint64 }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("the server has messages up to %d of this producer, but only those up to %d were sent here: "+
		"another program uses its name", e.Mark, e.Sent)
}

// ProtocolError says that what the server sent is not the native protocol, version 1.
type ProtocolError string

func (e ProtocolError) Error() string {
	return "the server does not speak the native protocol, version 1: " + string(e)
}

// GapError says that records were removed between two connections, before they were read.
type GapError struct{ Next, Start uint64 }

func (e *GapError) Error() string {
	return fmt.Sprintf("the records from %d up to %d were removed before they were read", e.Next, e.Start)
}

// GaveUpError says that all attempts to reach the server are used up. It wraps the failure of the last one.
type GaveUpError struct {
	Attempts int
	Elapsed  time.Duration
	Last     error
}

func (e *GaveUpError) Error() string {
	return fmt.Sprintf("gave up after %d attempts in %v: %v", e.Attempts, e.Elapsed.Round(100*time.Millisecond), e.Last)
}

func (e *GaveUpError) Unwrap() error { return e.Last }

// MessageTooLargeError says that a message is above what the server takes.
type MessageTooLargeError struct{ Len, Max int }

func (e *MessageTooLargeError) Error() string {
	return fmt.Sprintf("a message of %d bytes is too large: the server takes at most %d", e.Len, e.Max)
}

// IDError says that an id does not follow: ids rise, and by one unless they are sparse.
type IDError struct{ ID, Expected uint64 }

func (e *IDError) Error() string {
	return fmt.Sprintf("the id %d does not follow: %d was expected", e.ID, e.Expected)
}

var (
	// ErrForgotten says that the producer was away for longer than the server remembers producers; see
	// [ProducerConfig.AcceptDuplicates].
	ErrForgotten = errors.New("the server has forgotten this producer: it cannot tell what it has stored, and may store it again")
	// ErrNoMoreIDs says that the last id, 2^64-1, was used.
	ErrNoMoreIDs = errors.New("the last id, 2^64-1, was used")
	// ErrClosed says that the producer or the reader was closed.
	ErrClosed = errors.New("closed")
	// ErrUnanswered says that the server owes an answer for too long. A new connection is made.
	ErrUnanswered = errors.New("the server sent nothing for too long, though an answer is due: is another service at this address?")
	// ErrOvertaken says that a hello of an earlier connection, which the server read late, fenced this one. A new
	// connection is made.
	ErrOvertaken = errors.New("a session of this producer has begun elsewhere, perhaps by an earlier connection of this client")
	// ErrServerClosed says that the server closed the connection. A new one is made.
	ErrServerClosed = errors.New("the server closed the connection")

	errClosedUnanswered = fmt.Errorf("%w before it answered the ingest hello: it may speak TLS where this client speaks none, "+
		"or another protocol", ErrServerClosed)
)

// connError is of a socket.
type connError struct {
	what, to string
	err      error
}

func (e *connError) Error() string { return "cannot " + e.what + " " + e.to + ": " + e.err.Error() }
func (e *connError) Unwrap() error { return e.err }

// passing says whether a new connection may help.
func passing(err error) bool {
	var refused *RefusedError
	if errors.As(err, &refused) {
		switch refused.Reason {
		case Stopping, DiskFull, OverQuota, StreamFull, Moved:
			return true
		}
		return false
	}
	var cert *tls.CertificateVerificationError
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &cert) || errors.As(err, &host) || errors.As(err, &unknown) {
		return false
	}
	var conn *connError
	return errors.As(err, &conn) || errors.Is(err, ErrUnanswered) || errors.Is(err, ErrOvertaken) || errors.Is(err, ErrServerClosed)
}
