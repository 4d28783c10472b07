package web

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/test/page/invent"
)

// events reads server-sent events.
type events struct {
	*bufio.Reader
	t testing.TB
}

func (f *fixture) open(t testing.TB, query string) (*events, func()) {
	server := httptest.NewServer(f)
	r, err := http.Get(server.URL + "/live?" + query)
	require.NoError(t, err)
	require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
	return &events{bufio.NewReader(r.Body), t}, func() { _ = r.Body.Close(); server.CloseClientConnections(); server.Close() }
}

// next is the next event with data.
func (e *events) next() string {
	for {
		var b strings.Builder
		for {
			line, err := e.ReadString('\n')
			if errors.Is(err, io.EOF) && b.Len() > 0 {
				return b.String()
			}
			require.NoError(e.t, err)
			if line == "\n" {
				break
			}
			b.WriteString(line)
		}
		if strings.Contains(b.String(), "data:") {
			return b.String()
		}
	}
}

func TestLive(t *testing.T) {
	f := newFixture(t, 20)
	go f.store.Run(t.Context())
	e, end := f.open(t, "path=%2F&since="+f.mark(f.store.Snapshot().Version))
	defer end()
	first := e.next()
	assert.Contains(t, first, `id="totals"`)
	assert.NotContains(t, first, `id="n-`, "the browser has the nodes")

	c := held(f.objects, "node-0001")
	c.Status.Allocation, c.Status.ReservedFor = nil, nil
	require.NoError(t, f.store.Put(c))
	second := e.next()
	assert.Contains(t, second, "id: "+f.mark(f.store.Snapshot().Version)+"\n")
	assert.Contains(t, second, `id="n-node-0001"`)
	assert.Equal(t, 1, strings.Count(second, `<a class="n"`), "only the node that has changed")
	assert.Contains(t, second, `id="totals"`)

	c = held(f.objects, "node-0002")
	c.Status.Allocation, c.Status.ReservedFor = nil, nil
	require.NoError(t, f.store.Put(c))
	third := e.next()
	assert.Contains(t, third, `id="n-node-0002"`)
	assert.NotContains(t, third, `id="n-node-0001"`, "the browser has it")
}

// held is a claim that holds a GPU of a node.
func held(o invent.Objects, node string) *resourceapi.ResourceClaim {
	for i := range o.Claims {
		if a := o.Claims[i].Status.Allocation; a != nil && a.Devices.Results[0].Pool == node {
			return o.Claims[i].DeepCopy()
		}
	}
	return nil
}

// What has gone, or may not be seen any more, is loaded again, which says so.
func TestLiveReloads(t *testing.T) {
	f := newFixture(t, 2)
	none := func(string) bool { return false }
	few := newFixture(t, 2, func(o *Options) {
		o.Viewer = func(*http.Request) (overview.Viewer, error) { return overview.Viewer{Claims: none, Pods: none}, nil }
	})
	refused := newFixture(t, 2, func(o *Options) {
		o.Viewer = func(*http.Request) (overview.Viewer, error) { return overview.Viewer{}, errBusy }
	})
	for name, test := range map[string]struct {
		f     *fixture
		query string
	}{
		"gone": {f, "path=%2Fnodes%2Fgone&since=" + f.mark(1)}, "other nodes": {f, "path=%2F&since=" + f.mark(0)},
		"a pod that may not be seen": {few, "path=%2Fpending%2Fvision%2Ftrain-9000"}, "a user who may see nothing": {refused, "path=%2F"},
	} {
		t.Run(name, func(t *testing.T) {
			e, end := test.f.open(t, test.query)
			defer end()
			assert.Equal(t, "event: reload\ndata: .\n", e.next())
			_, err := e.ReadString(0)
			require.ErrorIs(t, err, io.EOF, "it ends")
		})
	}
}

// What is no page, and pages beyond those that are kept up to date, are refused.
func TestLiveRefuses(t *testing.T) {
	f := newFixture(t, 1)
	ask := func(query string) int {
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/live?"+query, nil))
		return w.Code
	}
	for _, query := range []string{"", "path=nodes", "path=http%3A%2F%2F%5B"} {
		assert.Equal(t, http.StatusBadRequest, ask(query), query)
	}
	assert.Empty(t, f.streams, "none of them is kept up to date")
	for range maxStreams {
		f.streams <- struct{}{}
	}
	assert.Equal(t, http.StatusServiceUnavailable, ask("path=%2F"))
}

// A page that another controller has drawn is drawn anew, without a reload: the two might take
// turns.
func TestLiveOfAnotherProcess(t *testing.T) {
	f := newFixture(t, 20)
	for _, query := range []string{"path=%2F&since=other-1", "path=%2F"} {
		e, end := f.open(t, query)
		first := e.next()
		assert.NotContains(t, first, "reload")
		assert.Equal(t, 20, strings.Count(first, `<a class="n"`))
		assert.Contains(t, first, `id="map-0"`)
		end()
	}
}
