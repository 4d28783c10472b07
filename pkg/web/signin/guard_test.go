package signin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/pkg/web"
	"github.com/tranche-dev/tranche/pkg/web/live"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
	"github.com/tranche-dev/tranche/test/page/invent"
)

// cluster answers reviews: tokens are names of users, who may list what is said here.
type cluster struct {
	*fake.Clientset
	may                 map[string]bool
	reviews, questions  atomic.Int32
	failReview, failAsk atomic.Bool
	// revoked: no token is valid any more.
	revoked atomic.Bool
}

func newCluster(may ...string) *cluster {
	c := &cluster{Clientset: kubefake.New(), may: map[string]bool{}}
	for _, m := range may {
		c.may[m] = true
	}
	clientfake.React(&c.Fake, "create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		c.reviews.Add(1)
		if c.failReview.Load() {
			return true, nil, errors.New("no answer")
		}
		r := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if strings.HasPrefix(r.Spec.Token, "user-") && !c.revoked.Load() {
			r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: r.Spec.Token[5:], UID: "id", Groups: []string{"staff"}, Extra: map[string]authenticationv1.ExtraValue{"scope": {"x"}, "node": {"y"}},
			}}
		}
		return true, r, nil
	})
	clientfake.React(&c.Fake, "create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		c.questions.Add(1)
		if c.failAsk.Load() {
			return true, nil, errors.New("no answer")
		}
		r := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		at := r.Spec.ResourceAttributes
		ok := at.Verb == "list" && r.Spec.UID == "id" && len(r.Spec.Groups) == 1 && len(r.Spec.Extra) == 2
		r.Status.Allowed = ok && (c.may[r.Spec.User+" "+at.Resource+" "+at.Namespace] || c.may[r.Spec.User+" everything"])
		r.Status.Denied = c.may[r.Spec.User+" nothing"]
		return true, r, nil
	})
	return c
}

// served serves an invented cluster to the users of c.
func served(t *testing.T, c *cluster) http.Handler {
	h, _ := servedWith(t, c)
	return h
}

// servedWith also returns what is known of the cluster.
func servedWith(t *testing.T, c kubernetes.Interface) (http.Handler, *live.Store) {
	now := func() time.Time { return time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC) }
	store, o, g := live.New(now), invent.Cluster(4, now()), New(c)
	require.NoError(t, store.Load(o.Objects, o.Plans...))
	store.Step(context.Background())
	page, err := web.New(web.Options{Source: store, Viewer: g.Viewer, User: g.User, Why: store.Explain, Now: now})
	require.NoError(t, err)
	return g.Handler(page), store
}

func get(h http.Handler, path, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "https://tranche.example"+path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var tenant = []string{"bob resourceslices ", "bob nodes ", "bob resourceclaims vision", "bob pods vision"}

func TestWithoutAToken(t *testing.T) {
	h := served(t, newCluster())
	for _, path := range []string{"/", "/nodes/node-0001", "/pending?answer", "/live?path=/"} {
		for _, token := range []string{"", "guessed", strings.Repeat("user-", 10000)} {
			w := get(h, path, token)
			assert.Equal(t, http.StatusUnauthorized, w.Code, path)
			assert.NotContains(t, w.Body.String(), "node-0001<")
			assert.Equal(t, path == "/" || path == "/nodes/node-0001", strings.Contains(w.Body.String(), "<form"), "%s: %s", path, w.Body)
		}
	}
	w := get(h, "/nodes/node-0001", "")
	assert.Contains(t, w.Body.String(), `action="/login"`)
	assert.Contains(t, w.Body.String(), `value="/nodes/node-0001"`, "the form leads back")
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	assert.NotEmpty(t, w.Header().Get("Strict-Transport-Security"))
	asset := regexp.MustCompile(`href="(/assets/[^"]+)"`).FindStringSubmatch(w.Body.String())
	require.NotNil(t, asset, "the form has a style")
	w = get(h, asset[1], "")
	assert.Equal(t, http.StatusOK, w.Code, asset[1])
	assert.NotEmpty(t, w.Body.String(), asset[1])
}

// Each user sees what they may list, and nothing else is in the answer.
func TestUsersSeeWhatTheyMayList(t *testing.T) {
	h := served(t, newCluster(append(tenant, "ann everything")...))
	ann, bob := get(h, "/nodes/node-0001", "user-ann"), get(h, "/nodes/node-0001", "user-bob")
	require.Equal(t, http.StatusOK, ann.Code)
	require.Equal(t, http.StatusOK, bob.Code)
	for _, namespace := range []string{"nlp/", "research/", "search/"} {
		assert.Contains(t, ann.Body.String(), namespace)
		assert.NotContains(t, bob.Body.String(), namespace)
	}
	assert.Contains(t, bob.Body.String(), "vision/")
	assert.Contains(t, bob.Body.String(), "another namespace")
	assert.Contains(t, bob.Body.String(), "you are not allowed to list gpunodes.tranche.dev")
	assert.NotContains(t, bob.Body.String(), "on-demand", "the profile is in the GPUNode")
	assert.Contains(t, ann.Body.String(), "on-demand")

	assert.NotContains(t, get(h, "/pending", "user-bob").Body.String(), "serve-llama")
	assert.Equal(t, http.StatusForbidden, get(h, "/pending/nlp/serve-llama-9001", "user-bob").Code)
	why := get(h, "/pending/vision/train-9000", "user-bob")
	assert.Equal(t, http.StatusOK, why.Code)
	for _, name := range []string{"serve-llama", "notebook", "embed", "nlp", "research"} {
		assert.NotContains(t, why.Body.String(), name)
	}
	assert.Contains(t, get(h, "/pending/vision/train-9000", "user-ann").Body.String(), "nlp: ", "answers for others are not kept for bob, nor his for them")

	none := get(h, "/", "user-eve")
	assert.Equal(t, http.StatusForbidden, none.Code)
	assert.Contains(t, none.Body.String(), "not allowed to list ResourceSlices")
	assert.NotContains(t, none.Body.String(), "node-0001")
}

// Each right is one of its own: a user who lacks one lacks what it shows, and nothing else.
func TestEachRightAlone(t *testing.T) {
	all := []string{"nodes", "gpunodes", "partitionplans", "resourceclaims", "pods"}
	for _, lacking := range all {
		may := []string{"bob resourceslices ", "bob resourceclaims mine", "bob pods mine"}
		for _, resource := range all {
			if resource != lacking {
				may = append(may, "bob "+resource+" ")
			}
		}
		r := httptest.NewRequest(http.MethodGet, "https://tranche.example/", nil)
		r.Header.Set("Authorization", "Bearer user-bob")
		v, err := New(newCluster(may...)).Viewer(r)
		require.NoError(t, err)
		assert.Equal(t, lacking == "nodes", v.NoNodes, lacking)
		assert.Equal(t, lacking == "gpunodes", v.NoProfiles, lacking)
		assert.Equal(t, lacking == "partitionplans", v.NoPlans, lacking)
		v.Ask(t.Context(), []string{"mine", "theirs"}, []string{"mine", "theirs"})
		for resource, in := range map[string]func(string) bool{"resourceclaims": v.Claims, "pods": v.Pods} {
			require.Equal(t, lacking == resource, in != nil, "without %s: %s", lacking, resource)
			if in != nil {
				assert.True(t, in("mine"), resource)
				assert.False(t, in("theirs"), resource)
			}
		}
	}
}

// What the API server has answered holds for half a minute; a token that it does not know any more, for
// a few seconds.
func TestAnswersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(tenant...)
		h := served(t, c)
		for i, step := range []struct {
			after              time.Duration
			change             func()
			code               int
			reviews, questions int
		}{
			{0, nil, http.StatusOK, 1, 6},
			{29 * time.Second, func() { c.revoked.Store(true) }, http.StatusOK, 1, 6},
			{2 * time.Second, nil, http.StatusUnauthorized, 2, 6},
			{4 * time.Second, func() { c.revoked.Store(false) }, http.StatusUnauthorized, 2, 6},
			{2 * time.Second, nil, http.StatusOK, 3, 12},
			{29 * time.Second, func() { c.may["bob nothing"] = true }, http.StatusOK, 3, 12},
			{2 * time.Second, nil, http.StatusForbidden, 4, 18},
		} {
			time.Sleep(step.after)
			if step.change != nil {
				step.change()
			}
			for range 2 * maxRequests {
				require.Equal(t, step.code, get(h, "/", "user-bob").Code, i)
			}
			assert.Equal(t, []int{step.reviews, step.questions}, []int{int(c.reviews.Load()), int(c.questions.Load())}, i)
		}
	})
}

// Without the API server nobody sees anything.
func TestWithoutTheAPIServer(t *testing.T) {
	c := newCluster(tenant...)
	h := served(t, c)
	c.failReview.Store(true)
	assert.Equal(t, http.StatusServiceUnavailable, get(h, "/", "user-bob").Code)
	assert.Contains(t, post(h, "/login", url.Values{"token": {"user-bob"}}, nil).Body.String(), "could not be asked about the token")
	c.failReview.Store(false)
	c.failAsk.Store(true)
	w := get(h, "/", "user-bob")
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.NotContains(t, w.Body.String(), "node-0001")
}

func post(h http.Handler, path string, form url.Values, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "https://tranche.example"+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestSignIn(t *testing.T) {
	h := served(t, newCluster(tenant...))
	w := post(h, "/login", url.Values{"token": {" user-bob\n"}, "to": {"/pending?x=1"}}, nil)
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "/pending?x=1", w.Header().Get("Location"))
	set := w.Header().Get("Set-Cookie")
	for _, attribute := range []string{"__Host-tranche-token=", "Path=/", "HttpOnly", "Secure", "SameSite=Strict"} {
		assert.Contains(t, set, attribute)
	}
	assert.NotContains(t, set, "Expires", "it ends with the browser")
	r := httptest.NewRequest(http.MethodGet, "https://tranche.example/", nil)
	r.AddCookie(w.Result().Cookies()[0])
	page := httptest.NewRecorder()
	h.ServeHTTP(page, r)
	assert.Equal(t, http.StatusOK, page.Code)
	assert.Contains(t, page.Body.String(), "Signed in as bob")

	bad := post(h, "/login", url.Values{"token": {"wrong"}}, nil)
	assert.Equal(t, http.StatusUnauthorized, bad.Code)
	assert.Contains(t, bad.Body.String(), "does not accept this token")
	assert.NotContains(t, bad.Body.String(), "wrong", "a token is not shown again")
	assert.Empty(t, bad.Header().Get("Set-Cookie"))

	out := post(h, "/logout", nil, http.Header{"Cookie": r.Header["Cookie"]})
	assert.Contains(t, out.Header().Get("Set-Cookie"), "Max-Age=0")
	assert.Equal(t, http.StatusSeeOther, out.Code)
	assert.Equal(t, "/", out.Header().Get("Location"))
}

// Another site cannot sign somebody in or out.
func TestOtherSites(t *testing.T) {
	h := served(t, newCluster(tenant...))
	for _, path := range []string{"/login", "/logout"} {
		w := post(h, path, url.Values{"token": {"user-bob"}}, http.Header{"Sec-Fetch-Site": {"cross-site"}})
		assert.Equal(t, http.StatusForbidden, w.Code)
		assert.Empty(t, w.Header().Get("Set-Cookie"))
	}
	assert.Equal(t, http.StatusMethodNotAllowed, post(h, "/nodes/x", nil, http.Header{"Authorization": {"Bearer user-bob"}}).Code)
}

func TestLocal(t *testing.T) {
	for to, want := range map[string]string{
		"/pending": "/pending", "/fits?profile=1g.10gb": "/fits?profile=1g.10gb", "": "/", "https://evil.example/": "/",
		"//evil.example": "/", "/\\evil.example": "/", "javascript:alert(1)": "/", "pending": "/", "/%2f%2fevil.example": "/", ":": "/",
	} {
		assert.Equal(t, want, local(to), to)
	}
}

func FuzzLocal(f *testing.F) {
	for _, seed := range []string{"/", "//x", "/\\x", "https://x", "/a?b#c", "/%2e%2e//x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, to string) {
		got := local(to)
		assert.True(t, strings.HasPrefix(got, "/"), got)
		assert.False(t, strings.HasPrefix(got, "//") || strings.HasPrefix(got, "/\\"), got)
	})
}
