package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// ProducerConfig is what a producer wants. The zero value is a producer without a name of the stream default.
type ProducerConfig struct {
	// Stream is the stream's name; empty for default.
	Stream string
	// Name is the producer's. Without one nothing outlives a connection: messages that were not acknowledged when it broke are
	// sent again, and may be stored twice.
	Name string
	// Token is a secret, where the server asks for one.
	Token string
	// Level is what acknowledgements are to mean; default [Durable].
	Level Level
	// AcceptLower goes on when the server grants less than Level, instead of failing.
	AcceptLower bool
	// AcceptDuplicates goes on when the server has forgotten this producer, which was away for too long.
	AcceptDuplicates bool
	// Sparse ids rise with gaps, and are the caller's: see [Producer.SendID].
	Sparse bool
	// FirstID is the id of the first message where the server knows nothing of this producer; default 1.
	FirstID uint64
	// WindowMessages and WindowBytes bound what may be on its way; 0 is as the server likes, which may grant less.
	WindowMessages uint32
	WindowBytes    uint64
	// BufferMessages and BufferBytes bound what may be unacknowledged; default one million messages, of 32 MiB with their
	// headers. One message may always be held, however large.
	BufferMessages int
	BufferBytes    int
	// Silence is how long the server may say nothing while it owes an answer; default 30 s. Then it counts as lost.
	Silence time.Duration
	// TLS speaks TLS; the server must prove to be the host of the address, unless ServerName is set.
	TLS *tls.Config
	// Retry is how to connect, and to connect again.
	Retry Retry
	// Logger hears of connections that are lost; nil for none.
	Logger *slog.Logger
}

// Producer sends messages and knows what became of them. It may be used by several goroutines.
type Producer struct {
	attempts *attempts
	tls      *tls.Config
	cancel   context.CancelFunc
	ended    chan struct{}

	mu      sync.Mutex
	session session
	wants   ProducerConfig
	// failure is what is final.
	failure error
	// changed is closed, and made anew, when something was acknowledged, welcomed or failed; nil while no caller waits.
	changed chan struct{}
	// wake tells the writer, which sleeps if asleep is set, that there is something to write.
	wake   chan struct{}
	asleep bool
}

// NewProducer connects and waits for the welcome. ctx bounds that alone.
func NewProducer(ctx context.Context, addr string, config ProducerConfig) (*Producer, error) {
	if config.Level == 0 {
		config.Level = Durable
	}
	if config.FirstID == 0 {
		config.FirstID = 1
	}
	if config.BufferMessages <= 0 {
		config.BufferMessages = 1_000_000
	}
	if config.BufferBytes <= 0 {
		config.BufferBytes = 32 << 20
	}
	if config.Silence <= 0 {
		config.Silence = 30 * time.Second
	}
	attempts, err := newAttempts(addr, config.Retry, config.Logger)
	if err != nil {
		return nil, err
	}
	p := &Producer{attempts: attempts, tls: config.TLS, wants: config, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	p.session.wants = &p.wants
	if _, err := p.session.hello(); err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go p.run(life)
	if err := p.until(ctx, func() bool { return p.session.wasGranted }); err != nil {
		p.Abandon()
		return nil, err
	}
	return p, nil
}

// Welcome is what the server granted at the last connection.
func (p *Producer) Welcome() Welcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session.granted
}

// Acknowledged is the id up to which all messages are at the level granted; false if there is none yet.
func (p *Producer) Acknowledged() (id uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session.settled, p.session.hasSettled
}

// Unacknowledged is how many messages are not acknowledged yet.
func (p *Producer) Unacknowledged() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session.outbox.messages
}

// Send takes a message, and answers its id. It waits only while the buffer is full; ctx bounds that.
func (p *Producer) Send(ctx context.Context, payload []byte) (uint64, error) {
	return p.send(ctx, 0, payload, false)
}

// SendID takes a message with an id of the caller's: any above the last one, where [ProducerConfig.Sparse] is set.
func (p *Producer) SendID(ctx context.Context, id uint64, payload []byte) error {
	_, err := p.send(ctx, id, payload, true)
	return err
}

func (p *Producer) send(ctx context.Context, id uint64, payload []byte, hasID bool) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.room(ctx, 1, messageHeader+len(payload)); err != nil {
		return 0, err
	}
	if !hasID {
		id = p.session.nextID
	}
	if err := p.session.check(id, len(payload)); err != nil {
		return 0, err
	}
	p.session.push(id, payload)
	p.signal()
	return id, nil
}

// SendBatch takes messages that are written together, and answers the id of the first: the others' follow. It takes all of
// them or none. It is several times as fast as Send for each.
func (p *Producer) SendBatch(ctx context.Context, payloads [][]byte) (uint64, error) {
	size, largest := 0, 0
	for _, payload := range payloads {
		size += messageHeader + len(payload)
		largest = max(largest, len(payload))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.room(ctx, len(payloads), size); err != nil {
		return 0, err
	}
	first := p.session.nextID
	if len(payloads) == 0 {
		return first, nil
	}
	if err := p.session.check(first, largest); err != nil {
		return 0, err
	}
	if first+uint64(len(payloads))-1 < first {
		return 0, ErrNoMoreIDs
	}
	for at, payload := range payloads {
		p.session.push(first+uint64(at), payload)
	}
	p.signal()
	return first, nil
}

// Flush waits until everything is acknowledged.
func (p *Producer) Flush(ctx context.Context) error {
	return p.until(ctx, func() bool { return p.session.outbox.messages == 0 })
}

// Wait waits until everything up to id is acknowledged.
func (p *Producer) Wait(ctx context.Context, id uint64) error {
	return p.until(ctx, func() bool {
		return p.session.outbox.messages == 0 || (p.session.hasSettled && p.session.settled >= id)
	})
}

// Close flushes and closes.
func (p *Producer) Close(ctx context.Context) error {
	err := p.Flush(ctx)
	if errors.Is(err, ErrClosed) {
		err = nil
	}
	p.Abandon()
	return err
}

// Abandon closes at once. What is not acknowledged may or may not be stored.
func (p *Producer) Abandon() {
	p.cancel()
	<-p.ended
}

// room waits until the buffer takes so much. The lock is held, but while it waits.
func (p *Producer) room(ctx context.Context, messages, bytes int) error {
	if p.failure != nil {
		return p.failure
	}
	if p.session.hasRoom(messages, bytes) {
		return nil
	}
	p.mu.Unlock()
	err := p.until(ctx, func() bool { return p.session.hasRoom(messages, bytes) })
	p.mu.Lock()
	if err == nil && p.failure == nil && !p.session.hasRoom(messages, bytes) {
		// Another goroutine was faster.
		return p.room(ctx, messages, bytes)
	}
	return err
}

// until waits until holds does, which is asked under the lock.
func (p *Producer) until(ctx context.Context, holds func() bool) error {
	for {
		p.mu.Lock()
		if holds() {
			p.mu.Unlock()
			return nil
		}
		if p.failure != nil {
			p.mu.Unlock()
			return p.failure
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell wakes callers that wait. The lock is held.
func (p *Producer) tell() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// signal wakes the writer. The lock is held.
func (p *Producer) signal() {
	if p.asleep {
		p.asleep = false
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// run connects, and connects again, until the producer is closed or something final happens.
func (p *Producer) run(life context.Context) {
	defer close(p.ended)
	since := time.Now()
	for {
		welcomed, err := p.connection(life, since)
		p.mu.Lock()
		p.session.disconnected()
		p.mu.Unlock()
		var pause time.Duration
		if life.Err() != nil {
			err = ErrClosed
		} else {
			if welcomed {
				since = time.Now()
			}
			pause, err = p.attempts.pauseAfter(err, time.Since(since))
		}
		if err == nil && !sleep(life, pause) {
			err = ErrClosed
		}
		if err != nil {
			p.mu.Lock()
			p.failure = err
			p.tell()
			p.mu.Unlock()
			return
		}
	}
}

// connection is one connection, from the attempt to its end.
func (p *Producer) connection(life context.Context, since time.Time) (welcomed bool, err error) {
	conn, err := p.attempts.dial(life, p.tls, since)
	if err != nil {
		return false, err
	}
	to := p.attempts.address()
	began := time.Now()
	most, bounded := p.attempts.timeLeft(began.Sub(since))
	p.mu.Lock()
	p.session.connected(began)
	p.mu.Unlock()

	here, stop := context.WithCancel(life)
	// A connection that ends ends both goroutines: their calls return when it is closed.
	unhook := context.AfterFunc(here, func() { conn.Close() })
	written := make(chan error, 1)
	go func() {
		err := p.write(here, conn)
		stop()
		written <- err
	}()
	welcomed, err = p.read(here, conn, func() (time.Time, bool) { return began.Add(most), bounded })
	stop()
	if writeErr := <-written; writeErr != nil && errors.Is(err, net.ErrClosed) {
		err = writeErr
	}
	unhook()
	conn.Close()
	var broken net.Error
	if errors.As(err, &broken) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		err = &connError{"go on with", to.String(), err}
	}
	return welcomed, err
}

// write writes what there is to write, until the connection ends.
func (p *Producer) write(here context.Context, conn net.Conn) error {
	var pieces [][]byte
	for {
		p.mu.Lock()
		pieces = p.session.output(pieces[:0], time.Now())
		p.asleep = len(pieces) == 0
		p.mu.Unlock()
		if len(pieces) == 0 {
			select {
			case <-p.wake:
			case <-here.Done():
				return nil
			}
			continue
		}
		buffers := net.Buffers(pieces)
		if _, err := buffers.WriteTo(conn); err != nil {
			return err
		}
	}
}

// read hears the server, and looks after time, until the connection ends.
func (p *Producer) read(here context.Context, conn net.Conn, welcomeDue func() (time.Time, bool)) (welcomed bool, err error) {
	buffer := make([]byte, 16<<10)
	filled := 0
	for {
		p.mu.Lock()
		deadline, ok := p.session.deadline()
		if !ok {
			// While nothing is in flight there is no deadline, and a message may be sent at any moment: looks again.
			deadline = time.Now().Add(p.wants.Silence)
		}
		if due, bounded := welcomeDue(); bounded && p.session.awaitsWelcome() && due.Before(deadline) {
			deadline = due
		}
		p.mu.Unlock()
		conn.SetReadDeadline(deadline)
		n, readErr := conn.Read(buffer[filled:])
		now := time.Now()
		filled += n
		p.mu.Lock()
		var heard news
		if n > 0 {
			var done int
			done, err = p.session.received(buffer[:filled], now, &heard)
			copy(buffer, buffer[done:filled])
			filled -= done
		}
		if err == nil && !errors.Is(readErr, os.ErrDeadlineExceeded) {
			err = readErr
		}
		if err == nil {
			err = p.session.expired(now)
		}
		if due, bounded := welcomeDue(); err == nil && bounded && p.session.awaitsWelcome() && !now.Before(due) {
			err = ErrUnanswered
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			err = ErrServerClosed
			if p.session.awaitsWelcome() {
				err = errClosedUnanswered
			}
		}
		if heard.welcomed && p.session.phase == open {
			p.attempts.succeeded()
			welcomed = true
		}
		p.signal()
		p.tell()
		p.mu.Unlock()
		if heard.refused != nil && err == nil {
			p.attempts.logger.Warn("messages are sent again", "because", heard.refused)
		}
		if heard.waitsFor != "" {
			p.attempts.logger.Info("the server waits", "for", heard.waitsFor)
		}
		if err != nil {
			return welcomed, err
		}
	}
}
