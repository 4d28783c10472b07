package serve

import (
	"container/list"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
)

// Listener has at most a number of connections open. A connection beyond that takes the place of
// another one that nobody holds: of that which was accepted or held longest ago. If all are held,
// the new one is closed.
type Listener struct {
	net.Listener
	most int

	// mu protects what follows, and what connections have of it.
	mu   sync.Mutex
	open list.List
}

// conn is an accepted connection.
type conn struct {
	net.Conn
	of *Listener
	// place is that in the list of open connections, and in none when the connection is closed. holders are
	// how many requests hold it.
	place   *list.Element
	holders int
}

// Listen listens on an address, and has at most a number of connections open.
func Listen(ctx context.Context, network, address string, most int) (*Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return &Listener{Listener: l, most: most}, nil
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // http.Server looks at it
		}
		c := &conn{Conn: accepted, of: l}
		replaced, ok := l.admit(c)
		if replaced != nil {
			_ = replaced.Conn.Close() // its server notices
		}
		if ok {
			return c, nil
		}
		_ = accepted.Close() // nobody has seen it
	}
}

// admit finds a place for a connection, which may be that of another one.
func (l *Listener) admit(c *conn) (replaced *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open.Len() >= l.most {
		if replaced = l.idlest(); replaced == nil {
			return nil, false
		}
		l.open.Remove(replaced.place)
	}
	c.place = l.open.PushBack(c)
	return replaced, true
}

// idlest is the first connection that nobody holds, nil if there is none. The lock is held.
func (l *Listener) idlest() *conn {
	for e := l.open.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*conn); c.holders == 0 { //nolint:forcetypeassert // the list has no others
			return c
		}
	}
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.open.Remove(c.place)
	c.of.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // as the connection itself
}

// hold adds to the requests that hold the connection. Where the last of them has ended, the
// connection is the last to be replaced.
func (c *conn) hold(requests int) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.holders += requests
	c.of.open.MoveToBack(c.place)
}

// connection is the key of a request's connection in its context.
type connection struct{}

// Hold keeps the connection of a request from being replaced by others until release is called. It
// is for requests of known users, whose number is limited.
func Hold(ctx context.Context) (release func()) {
	c, ok := ctx.Value(connection{}).(*conn)
	if !ok {
		return func() {}
	}
	c.hold(1)
	return func() { c.hold(-1) }
}

// remember makes the connection known to its requests.
func remember(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	return context.WithValue(ctx, connection{}, c)
}
