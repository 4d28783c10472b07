package web

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/web/live"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/page/invent"
	"github.com/tranche-dev/tranche/test/scenes"
)

var now = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)

// fixture is a server of an invented cluster.
type fixture struct {
	*Server
	store   *live.Store
	objects invent.Objects
}

func newFixture(t testing.TB, nodes int, set ...func(*Options)) *fixture {
	f := &fixture{store: live.New(func() time.Time { return now }), objects: invent.Cluster(nodes, now)}
	require.NoError(t, f.store.Load(f.objects.Objects, f.objects.Plans...))
	f.store.Step(context.Background())
	o := Options{Source: f.store, Now: func() time.Time { return now }, Why: f.why, Requested: requestedOf}
	for _, s := range set {
		s(&o)
	}
	var err error
	f.Server, err = New(o)
	require.NoError(t, err)
	return f
}

func (f *fixture) why(ctx context.Context, _ overview.Viewer, namespace, name string) (*why.Explanation, error) {
	in := why.Input{Objects: f.objects.Objects}
	for i := range in.PendingPods {
		if p := &in.PendingPods[i]; p.Namespace == namespace && p.Name == name {
			in.Pod = p
			return why.Explain(ctx, in), nil
		}
	}
	return why.ExplainAbsence(why.AbsentInput{Namespace: namespace, Name: name}), nil
}

// requestedOf is what pods request of a node.
func requestedOf(context.Context, string) (cluster.Requested, text.Unread) {
	amounts := func(memory, compute string) corev1.ResourceList {
		return corev1.ResourceList{names.ResourceGPUMemory: resource.MustParse(memory), names.ResourceGPUCompute: resource.MustParse(compute)}
	}
	return cluster.Requested{Sum: amounts("480Gi", "6k"), Of: amounts("640Gi", "8k")}, text.Unread{}
}

func (f *fixture) get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// paths are one of each kind of page.
var paths = map[string]string{
	"fleet": "/", "node": "/nodes/node-0001", "gpu": "/nodes/node-0001/" + scenes.GPUOf(2), "pending": "/pending", "why": "/pending/vision/train-9000",
	"rollouts": "/rollouts", "fits": "/fits?profile=1g.10gb", "fits-form": "/fits", "none": "/nodes/nobody",
}

var (
	inline  = regexp.MustCompile(`(?i)<[^>]+\s(style|on[a-z]+)\s*=|<style|<script>|javascript:`)
	foreign = regexp.MustCompile(`(?i)(src|href|action)="(https?:)?//`)
)

// A page has nothing that the policy of its server refuses, and asks no other host for anything.
func TestPagesKeepTheirPolicy(t *testing.T) {
	f := newFixture(t, 3)
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			w := f.get(path)
			h := w.Header()
			assert.Equal(t, "text/html; charset=utf-8", h.Get("Content-Type"))
			csp := h.Get("Content-Security-Policy")
			assert.Contains(t, csp, "default-src 'none'")
			assert.NotContains(t, csp, "unsafe")
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
				"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
			} {
				assert.Equal(t, want, h.Get(name), name)
			}
			assert.Empty(t, inline.FindAllString(w.Body.String(), -1))
			assert.Empty(t, foreign.FindAllString(w.Body.String(), -1))
			if name == "none" {
				assert.Equal(t, http.StatusNotFound, w.Code)
			} else {
				assert.Equal(t, http.StatusOK, w.Code)
			}
		})
	}
	kinds := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	for name := range f.names {
		content, err := files.ReadFile("assets/" + name)
		require.NoError(t, err)
		for _, accepted := range []string{"", "br, gzip"} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, f.asset(name), nil)
			r.Header.Set("Accept-Encoding", accepted)
			f.ServeHTTP(w, r)
			got := io.Reader(w.Body)
			if w.Header().Get("Content-Encoding") == "gzip" {
				got, err = gzip.NewReader(w.Body)
				require.NoError(t, err)
			}
			all, err := io.ReadAll(got)
			require.NoError(t, err)
			assert.Equal(t, string(content), string(all), name)
			assert.Equal(t, accepted != "", w.Header().Get("Content-Encoding") == "gzip", name)
			assert.Equal(t, kinds[filepath.Ext(name)], w.Header().Get("Content-Type"), name)
			assert.Equal(t, "Accept-Encoding", w.Header().Get("Vary"), name)
			assert.Contains(t, w.Header().Get("Cache-Control"), "immutable", name)
		}
	}
}

func TestPagesThatAreNotThere(t *testing.T) {
	f := newFixture(t, 1)
	f.Why = func(context.Context, overview.Viewer, string, string) (*why.Explanation, error) { return nil, nil }
	silent := newFixture(t, 1, func(o *Options) { o.Why = nil })
	for _, path := range []string{
		"/nodes", "/nodes/nobody/gpu", "/nodes/node-0001/gone", "/nodes/node-0001/" + scenes.GPUOf(1) + "/x", "/pending/vision", "/pending/vision/train-9000", "/x/fits", "/assets/none.js",
	} {
		for _, f := range []*fixture{f, silent} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("Accept-Encoding", "gzip")
			f.ServeHTTP(w, r)
			assert.Equal(t, http.StatusNotFound, w.Code, path)
		}
	}
}

// A page finds out what its user may see in the namespaces that it names.
func TestRightsThatAPageNeeds(t *testing.T) {
	var asked []string
	none := func(string) bool { return false }
	f := newFixture(t, 3, func(o *Options) {
		o.Viewer = func(*http.Request) (overview.Viewer, error) {
			return overview.Viewer{Claims: none, Pods: none, Ask: func(_ context.Context, claims, pods []string) {
				asked = append(asked, strings.Join(claims, ",")+" "+strings.Join(pods, ","))
			}}, nil
		}
	})
	for _, path := range []string{"/", "/pending", "/nodes/node-0001", "/pending/vision/train-9000"} {
		f.get(path)
	}
	waiting, holders := strings.Join(f.store.Snapshot().WaitingIn(), ","), strings.Join(overview.HoldersOf(f.store.Snapshot().Find("node-0001")), ",")
	assert.Equal(t, []string{waiting + " " + waiting, holders + " ", "vision vision"}, asked)
}

func TestOnlyReads(t *testing.T) {
	f := newFixture(t, 1)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
		assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	}
}

// Whatever a tenant names its objects, a page shows it as text.
func TestNamesAreText(t *testing.T) {
	f := newFixture(t, 1)
	evil := `<script>alert(1)</script>`
	c := scenes.Claim("vision", evil, "node-0001", 0, scenes.GPUOf(0))
	require.NoError(t, f.store.Put(&c))
	f.store.Step(t.Context())
	body := f.get("/nodes/node-0001").Body.String()
	assert.NotContains(t, body, evil)
	assert.Contains(t, body, "&lt;script&gt;alert(1)")
	assert.NotContains(t, f.get("/fits?profile=%3Cscript%3E").Body.String(), "<script>")
	assert.NotContains(t, f.get("/%3Cscript%3E").Body.String(), "<script>")
}

// Pods of a node are listed at most once in a while, however many look at its page.
func TestRequestsOfANode(t *testing.T) {
	var asked []string
	f := newFixture(t, 3, func(o *Options) {
		o.Requested = func(_ context.Context, node string) (cluster.Requested, text.Unread) {
			asked = append(asked, node)
			return cluster.Requested{}, read.Requests.Forbidden()
		}
	})
	for range 2 {
		assert.Contains(t, f.get("/nodes/node-0001").Body.String(), "How much of the node&#39;s GPU memory and compute pods request is not shown (you are not allowed to list pods).")
	}
	for _, path := range []string{"/", "/nodes/nobody", "/nodes/node-0001/" + scenes.GPUOf(1)} {
		f.get(path)
	}
	assert.Equal(t, []string{"node-0001"}, asked)
}

// Pending pods are listed by how long they wait, with what the scheduler says, and found by a part of their name.
func TestPendingPods(t *testing.T) {
	f := newFixture(t, 3)
	body := f.get("/pending").Body.String()
	assert.Regexp(t, "(?s)research/notebook-9002.*for 3h11m.*nlp/serve-llama-9001.*for 50m.*vision/train-9000.*for 3m", body)
	assert.Contains(t, body, `data-why="/pending/vision/train-9000?answer">0/3 nodes are available: 3 cannot allocate all claims.`)
	assert.Contains(t, body, `<a href="/pending?filter=nlp%2F">nlp/ 1</a>`)
	body = f.get("/pending?filter=llama").Body.String()
	assert.Contains(t, body, `href="/pending/nlp/serve-llama-9001"`)
	assert.NotContains(t, body, `href="/pending/vision/train-9000"`)
	assert.Contains(t, f.get("/pending?filter=nobody").Body.String(), "No name matches the filter.")
	none := func(string) bool { return false }
	f.Viewer = func(*http.Request) (overview.Viewer, error) { return overview.Viewer{Claims: none, Pods: none}, nil }
	assert.Regexp(t, "(?s)3 more wait in namespaces that you are not allowed to see.*None that you may see.", f.get("/pending").Body.String())
}

// What a user may not see is nowhere in the answer.
func TestRedaction(t *testing.T) {
	may := func(namespace string) bool { return namespace == "vision" }
	used := newUses(1)
	f := newFixture(t, 6, func(o *Options) {
		o.Usage = used
		o.Viewer = func(*http.Request) (overview.Viewer, error) {
			return overview.Viewer{Claims: may, Pods: may, NoProfiles: true, NoPlans: true, NoNodes: true, Key: "u"}, nil
		}
	})
	others := regexp.MustCompile(`\b(nlp|research|search)/|serve-llama|notebook-|embed-|inference|on-demand|Draining|NotReady|cordoned|Pods request`)
	for name, path := range paths {
		if name == "why" {
			continue // what Options.Why returns is redacted by who makes it
		}
		t.Run(name, func(t *testing.T) { assert.Empty(t, others.FindAllString(f.get(path).Body.String(), -1)) })
	}
	for _, c := range f.objects.Claims {
		if c.Status.Allocation == nil {
			continue
		}
		device := scenes.Result(&c).Device
		used.claims[device+"/"+c.Namespace+"/"+c.Name] = "used by " + c.Namespace + "!"
		used.claims[device+"//"] = "used by nobody!"
	}
	seen := map[string]bool{}
	for _, node := range f.store.Snapshot().Nodes {
		for i := range node.GPUs {
			for _, word := range regexp.MustCompile("used by [a-z-]+!").FindAllString(f.get("/nodes/"+node.Name+"/"+node.GPUs[i].Name).Body.String(), -1) {
				seen[word] = true
			}
		}
	}
	assert.Equal(t, map[string]bool{"used by vision!": true}, seen, "of holders that the user sees only")
	assert.Contains(t, f.get("/nodes/node-0001/"+scenes.GPUOf(1)).Body.String(), "<b>Compute</b> <span>50 %</span>", "of GPUs everybody")
	assert.Contains(t, f.get("/nodes/node-0001").Body.String(), "another namespace")
	rollouts := f.get("/rollouts").Body.String() + f.get("/").Body.String()
	assert.Contains(t, rollouts, "There is no PartitionPlan that you may see.")
	assert.NotRegexp(t, "Switches under way|being switched", rollouts)
	assert.Contains(t, f.get("/pending").Body.String(), "2 more wait in namespaces that you are not allowed to see")
	assert.Equal(t, http.StatusForbidden, f.get("/pending/nlp/serve-llama-9001").Code)
	assert.Equal(t, http.StatusForbidden, f.get("/pending/nlp/serve-llama-9001?answer").Code)
	assert.Equal(t, http.StatusOK, f.get("/pending/vision/train-9000").Code)
}

func TestRefusedUser(t *testing.T) {
	f := newFixture(t, 1, func(o *Options) {
		o.Viewer = func(*http.Request) (overview.Viewer, error) {
			return overview.Viewer{}, &RefusedError{Status: http.StatusForbidden, Title: "Not for you", Text: "Ask somebody."}
		}
	})
	w := f.get("/")
	assert.Equal(t, http.StatusForbidden, w.Code)
	assert.Contains(t, w.Body.String(), "Ask somebody.")
	assert.NotContains(t, w.Body.String(), "node-0001")
}

func TestAnswer(t *testing.T) {
	f := newFixture(t, 2)
	w := f.get("/pending/vision/train-9000?answer")
	assert.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Contains(t, w.Body.String(), "vision/train-9000")
	assert.NotContains(t, w.Body.String(), "<")
	ask := f.Why
	f.Why = func(context.Context, overview.Viewer, string, string) (*why.Explanation, error) {
		return nil, errors.New("asked twice")
	}
	assert.Equal(t, http.StatusOK, f.get("/pending/vision/train-9000").Code, "an answer is kept for a moment")
	w = f.get("/pending/nlp/serve-llama-9001?answer")
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Equal(t, "asked twice\n", w.Body.String())
	f.Why = ask
	assert.Equal(t, http.StatusOK, f.get("/pending/nlp/serve-llama-9001").Code, "an error is not kept")
}

func TestReadingPage(t *testing.T) {
	s, err := New(Options{Source: live.New(time.Now), Now: time.Now})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Contains(t, w.Body.String(), "Reading the cluster")
}

func TestLoopback(t *testing.T) {
	_, err := Listen(t.Context(), 99999)
	require.ErrorContains(t, err, "serve the page on this machine: listen on 127.0.0.1:99999")
	l, err := Listen(t.Context(), 0)
	require.NoError(t, err)
	page, err := New(Options{Base: l.Base, Source: newFixture(t, 1).store, Now: time.Now})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Serve(ctx, page) }()
	address := strings.TrimSuffix(l.URL(), l.Base+"/")
	get := func(path, host string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, nil)
		require.NoError(t, err)
		if host != "" {
			r.Host = host
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	assert.Equal(t, http.StatusOK, get(l.Base+"/", ""))
	assert.Equal(t, http.StatusOK, get(l.Base+"/", "localhost:"+address[strings.LastIndex(address, ":")+1:]))
	assert.Equal(t, http.StatusForbidden, get("/", ""), "without the token")
	assert.Equal(t, http.StatusForbidden, get("/nodes/node-0001", ""), "without the token")
	assert.Equal(t, http.StatusForbidden, get(l.Base+"x/", ""), "with another token")
	assert.Equal(t, http.StatusForbidden, get(l.Base[:len(l.Base)-1]+"/", ""), "with another token")
	assert.Equal(t, http.StatusMisdirectedRequest, get(l.Base+"/", "evil.example:80"), "by another name")
	assert.GreaterOrEqual(t, len(l.Base), 20)
	stop()
	assert.NoError(t, <-ended)
}
