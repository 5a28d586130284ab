package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math"
	"net"
	"os"
	"time"
)

// Begin is where reading begins; see [First], [Tail], [Position], [Since] and [Cursor]. The zero value is the cursor if there
// is one, else the oldest record.
type Begin struct {
	kind uint8
	at   uint64
}

// First is the oldest record kept.
func First() Begin { return Begin{kind: 1} }

// Tail is behind the newest record.
func Tail() Begin { return Begin{kind: 2} }

// Position is the record at this position. Below the oldest one kept, reading begins at the oldest.
func Position(at uint64) Begin { return Begin{1, at} }

// Since is the first record that the server received at this time or later.
func Since(at time.Time) Begin { return Begin{3, uint64(max(at.UnixMicro(), 0))} }

// Cursor is where the named cursor stands; the oldest record if it stands nowhere yet.
func Cursor() Begin { return Begin{kind: 4} }

// ReaderConfig is what a reader wants. The zero value reads the stream default from the oldest record to the tail.
type ReaderConfig struct {
	// Stream is the stream's name; empty for default.
	Stream string
	// Begin is where reading begins.
	Begin Begin
	// Follow waits at the tail for more, instead of ending there.
	Follow bool
	// Wait waits for a stream that does not exist yet; only with Follow.
	Wait bool
	// Cursor is a name under which the server remembers how far this reader is; see [Reader.Commit].
	Cursor string
	// Token is a secret, where the server asks for one.
	Token string
	// Credit is how many bytes may be on their way; default 4 MiB. One batch may exceed it.
	Credit uint64
	// TLS speaks TLS; the server must prove to be the host of the address, unless ServerName is set.
	TLS *tls.Config
	// Retry is how to connect, and to connect again.
	Retry Retry
	// Logger hears of connections that are lost; nil for none.
	Logger *slog.Logger
}

// Record is one message as it is stored.
type Record struct {
	// Position is its place in the stream.
	Position uint64
	// ID is what its producer gave it.
	ID uint64
	// Producer is empty if it had no name.
	Producer string
	// Time is when the server received it.
	Time time.Time
	// Payload is the caller's to keep.
	Payload []byte
}

// Reader reads a stream, record by record, over as many connections as it takes. It is for one goroutine at a time.
type Reader struct {
	attempts *attempts
	config   ReaderConfig
	conn     net.Conn
	buffer   []byte
	out      []byte
	failure  error

	welcome    ReaderWelcome
	next       uint64
	hasNext    bool
	isOpen     bool
	ended      bool
	until      uint64
	hasUntil   bool
	spent      uint64
	cursor     uint64
	hasCursor  bool
	batch      batch
	batchLeft  uint32
	receivedAt time.Time
}

// NewReader connects and waits for the welcome. ctx bounds that alone.
func NewReader(ctx context.Context, addr string, config ReaderConfig) (*Reader, error) {
	if config.Credit == 0 {
		config.Credit = 4 << 20
	}
	if config.Begin.kind == 0 {
		config.Begin = First()
		if config.Cursor != "" {
			config.Begin = Cursor()
		}
	}
	if config.Wait && !config.Follow {
		return nil, errors.New("only a reader that follows can wait for a stream")
	}
	if config.Begin.kind == 4 && config.Cursor == "" {
		return nil, errors.New("the cursor has no name")
	}
	attempts, err := newAttempts(addr, config.Retry, config.Logger)
	if err != nil {
		return nil, err
	}
	r := &Reader{attempts: attempts, config: config}
	if _, err := r.hello(); err != nil {
		return nil, err
	}
	if err := r.connect(ctx, time.Now()); err != nil {
		return nil, err
	}
	return r, nil
}

// Welcome is what the server said that it has, at the last connection.
func (r *Reader) Welcome() ReaderWelcome { return r.welcome }

// Read waits for the next record. It answers io.EOF at the tail, unless the reader follows. When ctx ends, reading may go on
// later.
func (r *Reader) Read(ctx context.Context) (Record, error) {
	for {
		if r.batchLeft > 0 {
			record, err := r.record()
			if err != nil {
				return Record{}, r.end(err)
			}
			return record, nil
		}
		if r.failure != nil {
			return Record{}, r.failure
		}
		if r.isOver() {
			return Record{}, io.EOF
		}
		if err := r.more(ctx); err != nil {
			if err == ctx.Err() && err != nil {
				return Record{}, err
			}
			if err := r.again(ctx, err); err != nil {
				return Record{}, err
			}
		}
	}
}

// All ranges over the records that are left; an error is the last value.
func (r *Reader) All(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			record, err := r.Read(ctx)
			if err == io.EOF || !yield(record, err) || err != nil {
				return
			}
		}
	}
}

// Commit says that all records before position are dealt with: the cursor moves there, with the log's next commit. Nothing is
// answered; [Reader.Close] sees to it that the server has it.
func (r *Reader) Commit(ctx context.Context, position uint64) error {
	if r.config.Cursor == "" {
		return errors.New("this reader was given no cursor to move")
	}
	if r.failure != nil {
		return r.failure
	}
	r.cursor, r.hasCursor = position, true
	if r.conn == nil {
		return nil
	}
	r.out = readerFrame(r.out, 2, position)
	if err := r.write(ctx); err != nil {
		return r.again(ctx, err)
	}
	return nil
}

// Close ends reading in order, so that a cursor that was moved has reached the server.
func (r *Reader) Close(ctx context.Context) error {
	conn := r.conn
	if r.failure == nil {
		r.failure = ErrClosed
	}
	r.conn, r.batchLeft = nil, 0
	if conn == nil {
		return nil
	}
	defer conn.Close()
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || r.config.Cursor == "" {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn.SetDeadline(time.Now().Add(r.attempts.retry.Timeout))
	err := half.CloseWrite()
	if err == nil {
		_, err = io.Copy(io.Discard, conn)
	}
	if err != nil {
		return failed(ctx, "end reading from", r.attempts.address(), err)
	}
	return nil
}

func (r *Reader) hello() ([]byte, error) {
	begin := r.config.Begin
	if r.hasNext {
		begin = Position(r.next)
	}
	// A reader with a cursor asks to follow, and ends by itself where the tail was at its first welcome: a server that has
	// sent the end does not hear where the cursor is moved to.
	s := subscribe{begin: begin, follow: r.config.Follow || r.config.Cursor != "", mayBeAbsent: r.config.Wait,
		credit: r.config.Credit, stream: r.config.Stream, cursor: r.config.Cursor, token: r.config.Token}
	return s.encode()
}

func (r *Reader) isOver() bool { return r.ended || (r.hasUntil && r.hasNext && r.next >= r.until) }

// end is final.
func (r *Reader) end(err error) error {
	r.failure, r.batchLeft = err, 0
	r.drop()
	return err
}

func (r *Reader) drop() {
	if r.conn != nil {
		r.conn.Close()
		r.conn = nil
	}
}

// again connects after a failure.
func (r *Reader) again(ctx context.Context, failure error) error {
	since := time.Now()
	if err := r.pause(ctx, failure, since); err != nil {
		return err
	}
	return r.connect(ctx, since)
}

func (r *Reader) pause(ctx context.Context, failure error, since time.Time) error {
	r.drop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	pause, err := r.attempts.pauseAfter(failure, time.Since(since))
	if err != nil {
		return r.end(err)
	}
	if !sleep(ctx, pause) {
		return ctx.Err()
	}
	return nil
}

func (r *Reader) connect(ctx context.Context, since time.Time) error {
	for {
		err := r.greet(ctx, since)
		if err == nil {
			r.attempts.succeeded()
			return nil
		}
		if err := r.pause(ctx, err, since); err != nil {
			return err
		}
	}
}

func (r *Reader) greet(ctx context.Context, since time.Time) error {
	conn, err := r.attempts.dial(ctx, r.config.TLS, since)
	if err != nil {
		return err
	}
	r.conn, r.buffer, r.isOpen, r.spent = conn, nil, false, 0
	if r.out, err = r.hello(); err != nil {
		return err
	}
	if err := r.write(ctx); err != nil {
		return err
	}
	until := time.Now().Add(r.attempts.retry.Timeout)
	for !r.isOpen {
		frame, err := r.frame(ctx, until)
		if err != nil {
			return err
		}
		if err := r.take(frame); err != nil {
			return err
		}
	}
	return r.write(ctx)
}

// more takes in one frame.
func (r *Reader) more(ctx context.Context) error {
	if r.conn == nil {
		return ErrServerClosed
	}
	frame, err := r.frame(ctx, time.Time{})
	if err != nil {
		return err
	}
	if err := r.take(frame); err != nil {
		return err
	}
	return r.write(ctx)
}

type sizedFrame struct {
	frame any
	size  int
}

// frame waits for the next frame, until a time if that is not zero.
func (r *Reader) frame(ctx context.Context, until time.Time) (sizedFrame, error) {
	var stop func() bool
	for {
		most := bodyMax
		if r.isOpen {
			most = max(most, int(r.welcome.BodyMax))
		}
		frame, size, err := decode(r.buffer, most)
		if err != nil {
			return sizedFrame{}, err
		}
		if size > 0 {
			// A batch points into what it came in, which is not written again.
			r.buffer = r.buffer[size:]
			return sizedFrame{frame, size}, nil
		}
		if stop == nil {
			conn := r.conn
			conn.SetReadDeadline(until)
			stop = context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
			defer stop()
		}
		need := frameHeader
		if len(r.buffer) >= frameHeader {
			need += int(le.Uint32(r.buffer[4:]))
		}
		if cap(r.buffer) < need || cap(r.buffer)-len(r.buffer) < 16<<10 {
			grown := make([]byte, len(r.buffer), max(256<<10, need))
			copy(grown, r.buffer)
			r.buffer = grown
		}
		n, err := r.conn.Read(r.buffer[len(r.buffer):cap(r.buffer)])
		r.buffer = r.buffer[:len(r.buffer)+n]
		if n > 0 || err == nil {
			continue
		}
		switch {
		case ctx.Err() != nil:
			return sizedFrame{}, ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return sizedFrame{}, ErrUnanswered
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			if !r.isOpen {
				return sizedFrame{}, errClosedUnanswered
			}
			return sizedFrame{}, ErrServerClosed
		}
		return sizedFrame{}, failed(ctx, "read from", r.attempts.address(), err)
	}
}

func (r *Reader) write(ctx context.Context) error {
	if len(r.out) == 0 {
		return nil
	}
	r.conn.SetWriteDeadline(time.Now().Add(r.attempts.retry.Timeout))
	_, err := r.conn.Write(r.out)
	r.out = r.out[:0]
	if err != nil {
		return failed(ctx, "write to", r.attempts.address(), err)
	}
	return nil
}

func (r *Reader) take(frame sizedFrame) error {
	switch f := frame.frame.(type) {
	case unknown:
		return nil
	case refusal:
		return &f.RefusedError
	case ReaderWelcome:
		if !r.isOpen {
			return r.welcomed(f)
		}
	case batch:
		if r.isOpen {
			return r.took(f, frame.size)
		}
	case end:
		if r.isOpen {
			r.next = max(r.next, f.next)
			r.ended = true
			return nil
		}
	}
	return ProtocolError("a frame is out of its place")
}

func (r *Reader) welcomed(w ReaderWelcome) error {
	if r.hasNext && w.Start != r.next {
		return &GapError{r.next, w.Start}
	}
	if !r.hasNext && !r.config.Follow && r.config.Cursor != "" {
		r.until, r.hasUntil = w.Next, true
	}
	r.next, r.hasNext, r.welcome, r.isOpen = w.Start, true, w, true
	if r.hasCursor {
		// The connection before may have broken before the server heard it.
		r.out = readerFrame(r.out, 2, r.cursor)
	}
	return nil
}

func (r *Reader) took(b batch, size int) error {
	// A later position is a gap: what was there was lost in damage, which the log has marked.
	if b.first < r.next || b.count == 0 || b.first > math.MaxUint64-uint64(b.count) {
		return ProtocolError(fmt.Sprintf("%d records from position %d on, where %d is next", b.count, b.first, r.next))
	}
	r.next = b.first + uint64(b.count)
	r.batch, r.batchLeft = b, b.count
	r.receivedAt = time.UnixMicro(int64(b.timestampUS))
	r.spent += uint64(size)
	if r.spent >= r.config.Credit/4 {
		r.out = readerFrame(r.out, 1, r.spent)
		r.spent = 0
	}
	return nil
}

// record is the next one of the batch.
func (r *Reader) record() (Record, error) {
	b := &r.batch
	if len(b.messages) < messageHeader {
		return Record{}, ProtocolError("a batch has fewer records than it says")
	}
	id, size := le.Uint64(b.messages), uint64(le.Uint32(b.messages[8:]))
	if uint64(len(b.messages)-messageHeader) < size {
		return Record{}, ProtocolError("a batch with a record that is cut")
	}
	end := messageHeader + int(size)
	record := Record{Position: r.next - uint64(r.batchLeft), ID: id, Producer: b.producer, Time: r.receivedAt,
		Payload: b.messages[messageHeader:end:end]}
	b.messages = b.messages[end:]
	r.batchLeft--
	if r.batchLeft == 0 && len(b.messages) > 0 {
		return Record{}, ProtocolError("a batch has more bytes than records")
	}
	return record, nil
}
