package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const patience = 20 * time.Second

// started serves a handler until the test ends.
func started(t *testing.T, most int, h http.Handler, change func(*http.Server)) string {
	l, err := Listen(t.Context(), "tcp", "127.0.0.1:0", most)
	require.NoError(t, err)
	server := New(h)
	if change != nil {
		change(server)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, server, l) }()
	t.Cleanup(func() {
		end()
		assert.NoError(t, <-ended)
	})
	return l.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// requireCut requires that the server ends a connection, not the deadline of the test.
func requireCut(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, c)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the connection is open")
}

// Whoever sends or receives slowly is cut off, whatever they are slow with.
func TestSlowClientsAreCutOff(t *testing.T) {
	large := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, err := io.Copy(w, io.LimitReader(endless{}, 1<<30))
		assert.Error(t, err)
	})
	soon := func(s *http.Server) {
		for _, d := range []*time.Duration{&s.ReadHeaderTimeout, &s.ReadTimeout, &s.WriteTimeout, &s.IdleTimeout} {
			require.Positive(t, *d)
			require.LessOrEqual(t, *d, 2*time.Minute)
			*d = 100 * time.Millisecond
		}
	}
	small := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	for name, test := range map[string]struct {
		handler http.Handler
		sends   string
	}{
		"nothing":           {small, ""},
		"part of a header":  {small, "GET / HTTP/1.1\r\nHost: x\r\n"},
		"part of a body":    {large, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"},
		"an unread body":    {small, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"},
		"no second request": {small, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, started(t, 10, test.handler, soon))
			_, err := io.WriteString(c, test.sends)
			require.NoError(t, err)
			requireCut(t, c)
		})
	}
	t.Run("receives nothing", func(t *testing.T) {
		ended := make(chan struct{})
		c := dial(t, started(t, 10, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			large.ServeHTTP(w, r)
		}), soon))
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		select {
		case <-ended:
		case <-time.After(patience):
			require.Fail(t, "the handler writes on")
		}
	})
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// The deadline for reading does not end requests that have been read, over HTTP/1 and HTTP/2.
func TestRequestsOutlastTheDeadlineForReading(t *testing.T) {
	const deadline = time.Second // the handshake of TLS has it too
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			assert.Fail(t, "the request has ended")
		case <-time.After(2 * deadline):
			fmt.Fprint(w, r.Proto)
		}
	})
	borrowed := httptest.NewTLSServer(nil)
	t.Cleanup(borrowed.Close)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			address := started(t, 10, h, func(s *http.Server) {
				s.ReadTimeout = deadline
				s.TLSConfig = &tls.Config{Certificates: borrowed.TLS.Certificates, MinVersion: tls.VersionTLS12}
			})
			client := &http.Client{Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: proto == "HTTP/2.0", //nolint:gosec // nobody has signed it
			}}
			answer, err := client.Get("https://" + address)
			require.NoError(t, err)
			said, err := io.ReadAll(answer.Body)
			require.NoError(t, errors.Join(err, answer.Body.Close()))
			assert.Equal(t, proto, string(said))
		})
	}
}

// Connections of strangers replace each other, those that are held stay.
func TestConnectionsOfStrangersReplaceEachOther(t *testing.T) {
	held, end := make(chan struct{}), make(chan struct{})
	address := started(t, 3, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			defer Hold(r.Context())()
			held <- struct{}{}
			<-end
		}
		_, _ = io.WriteString(w, "ok")
	}), nil)
	ask := func(c net.Conn, path string) {
		_, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
	}
	requireAnswer := func(c net.Conn) {
		t.Helper()
		answer := make([]byte, 15)
		_, err := io.ReadFull(c, answer)
		require.NoError(t, err)
		require.Equal(t, "HTTP/1.1 200 OK", string(answer))
	}
	user := dial(t, address)
	ask(user, "/held")
	<-held
	var strangers []net.Conn
	for range 5 {
		c := dial(t, address)
		strangers = append(strangers, c)
		ask(c, "/")
		requireAnswer(c)
	}
	for _, c := range strangers[:3] {
		requireCut(t, c)
	}
	ask(strangers[4], "/")

	var users []net.Conn
	for range 2 {
		c := dial(t, address)
		users = append(users, c)
		ask(c, "/held")
		<-held
	}
	requireCut(t, dial(t, address))
	close(end)
	for _, c := range append(users, user) {
		requireAnswer(c)
	}
	last := dial(t, address)
	ask(last, "/")
	requireAnswer(last)
}

// A connection that has ended takes the place of no other.
func TestConnectionsThatEnd(t *testing.T) {
	address := started(t, 2, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), nil)
	ask := func(c net.Conn, header string) {
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+header+"\r\n")
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
	}
	first, second := dial(t, address), dial(t, address)
	ask(first, "")
	ask(second, "Connection: close\r\n")
	requireCut(t, second)
	ask(dial(t, address), "")
	ask(first, "")
}

// The connection that was accepted or held longest ago is replaced, and none twice.
func TestWhichConnectionIsReplaced(t *testing.T) {
	l, err := Listen(t.Context(), "tcp", "127.0.0.1:0", 3)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	connect := func() (client, accepted net.Conn) {
		client = dial(t, l.Addr().String())
		accepted, err := l.Accept()
		require.NoError(t, err)
		return client, accepted
	}
	used, first := connect()
	second, _ := connect()
	held, third := connect()
	Hold(remember(t.Context(), first))()
	release := Hold(remember(t.Context(), tls.Server(third, nil)))
	for _, replaced := range []net.Conn{second, used} {
		connect()
		requireCut(t, replaced)
	}
	release()
	for range 2 {
		connect()
	}
	require.NoError(t, held.SetReadDeadline(time.Now()))
	_, err = held.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is the last to be replaced")
	Hold(t.Context())()
}

func TestServersThatFail(t *testing.T) {
	_, err := Listen(t.Context(), "tcp", "127.0.0.1:99999", 1)
	require.ErrorContains(t, err, "listen on 127.0.0.1:99999: ")
	l, err := Listen(t.Context(), "tcp", "127.0.0.1:0", 1)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorIs(t, Run(t.Context(), New(nil), l), net.ErrClosed)
}

func TestEndpoints(t *testing.T) {
	var unready error
	ready := func(context.Context) error { return unready }
	with := Endpoints(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics\n") }), ready)
	get := func(h http.Handler, path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	assert.Equal(t, "200 metrics\n", get(with, "/metrics"))
	assert.Equal(t, "200 ok\n", get(with, "/readyz"))
	unready = errors.New("not yet")
	without := Endpoints(nil, ready)
	for path, want := range map[string]string{"/healthz": "200 ok\n", "/readyz": "503 not yet\n", "/metrics": "404 404 page not found\n", "/": "404 404 page not found\n"} {
		assert.Equal(t, want, get(without, path), path)
	}
}
