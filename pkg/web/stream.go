package web

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// minInterval is the least time between two updates of a page.
	minInterval = 100 * time.Millisecond
	// refreshInterval is how often times such as "since 2m" are drawn again, and the user's rights checked.
	refreshInterval = 10 * time.Second
	// writeTimeout is how long a browser may take to receive an update.
	writeTimeout = 20 * time.Second
)

// stream keeps one page in one browser up to date.
type stream struct {
	*Server
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	path    string
	query   url.Values
	// version and shape are what the browser has, sent are the hashes of its blocks. all: it is
	// not known what it has, because another process has drawn the page.
	version, shape uint64
	all            bool
	seed           maphash.Seed
	sent           map[int]uint64
}

// serveLive sends the parts of a page that change, as server-sent events. An event has the
// elements that replace those with the same ids.
func (s *Server) serveLive(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	at, err := url.Parse(r.URL.Query().Get("path"))
	if err != nil || !strings.HasPrefix(at.Path, "/") {
		http.Error(w, "the path of the page is missing", http.StatusBadRequest)
		return
	}
	since := r.Header.Get("Last-Event-ID")
	if since == "" {
		since = r.URL.Query().Get("since")
	}
	st := &stream{Server: s, w: w, r: r, control: http.NewResponseController(w), path: at.Path, query: at.Query(), seed: maphash.MakeSeed(), sent: map[int]uint64{}}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	version, ok := s.since(since)
	st.version, st.shape, st.all = version, version, !ok
	st.follow(r.Context())
}

// follow sends updates until the browser goes.
func (st *stream) follow(ctx context.Context) {
	changes, end := st.Source.Subscribe()
	defer end()
	updates, end := st.usageUpdates()
	defer end()
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	if st.send(": hello\n\n") != nil {
		return
	}
	for {
		began := time.Now()
		if st.update(ctx) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(0, minInterval-time.Since(began))):
		}
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-updates:
		case <-ticker.C:
			if st.send(": still here\n\n") != nil {
				return
			}
		}
	}
}

// usageUpdates returns a channel that gets a value when the use of the GPUs on the page has changed. It is
// nil for other pages.
func (st *stream) usageUpdates() (updates <-chan struct{}, end func()) {
	parts := strings.Split(strings.Trim(st.path, "/"), "/")
	if st.Usage == nil || len(parts) < 2 || parts[0] != "nodes" {
		return nil, func() {}
	}
	return st.Usage.Subscribe(parts[1])
}

// update sends what differs from what the browser has.
func (st *stream) update(ctx context.Context) error {
	v, err := st.viewer(st.r)
	if err != nil {
		return errors.Join(err, st.send(reload))
	}
	c, err := st.prepare(ctx, scope{Snapshot: st.Source.Snapshot(), Viewer: v, now: st.Now(), query: st.query}, st.path)
	if err != nil {
		return errors.Join(err, st.send(reload))
	}
	out, err := st.draw(ctx, c)
	switch {
	case errors.Is(err, errBusy):
		return nil // the next update has it
	case err != nil:
		return errors.Join(err, st.send(reload))
	case out == "":
		return nil
	}
	return st.send("id: " + st.mark(c.Version) + "\ndata: " + strings.ReplaceAll(out, "\n", "\ndata: ") + "\n\n")
}

// draw draws what differs from what the browser has.
func (st *stream) draw(ctx context.Context, c scope) (string, error) {
	done, err := st.drawing(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	p, err := st.page(c, st.path)
	if err != nil {
		return "", err
	}
	if c.Shape > st.shape && !st.all {
		return "", errReload
	}
	var out strings.Builder
	for i, b := range p.blocks {
		st.changed(&out, i, b)
	}
	st.version, st.shape, st.all = c.Version, max(st.shape, c.Shape), false
	return out.String(), nil
}

// reload makes the browser load the page again.
const reload = "event: reload\ndata: .\n\n"

var errReload = errors.New("the browser loads the page again")

// changed adds a block, or its items, to an update if the browser does not have them.
func (st *stream) changed(out *strings.Builder, i int, b block) {
	n := b.whole
	if b.head != nil && !st.all {
		n = b.head
		for _, it := range b.items {
			if it.version > st.version {
				out.WriteString(render(it.node))
			}
		}
	}
	html := render(n)
	sum := maphash.String(st.seed, html)
	if st.sent[i] != sum {
		st.sent[i] = sum
		out.WriteString(html)
	}
}

// send sends text. A browser that does not receive it in time is cut off; between two updates there
// is no deadline.
func (st *stream) send(text string) error {
	if err := st.deadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := st.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("send an update: %w", err)
	}
	if err := st.control.Flush(); err != nil {
		return fmt.Errorf("send an update: %w", err)
	}
	return st.deadline(time.Time{})
}

func (st *stream) deadline(at time.Time) error {
	if err := st.control.SetWriteDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("send an update: %w", err)
	}
	return nil
}

// mark identifies a version of this process.
func (s *Server) mark(version uint64) string {
	return s.instance + "-" + strconv.FormatUint(version, 10)
}

// since returns the version of a mark, if this process made it.
func (s *Server) since(mark string) (uint64, bool) {
	instance, version, ok := strings.Cut(mark, "-")
	n, err := strconv.ParseUint(version, 10, 64)
	return n, ok && err == nil && instance == s.instance
}
