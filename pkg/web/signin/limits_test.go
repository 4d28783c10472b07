package signin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/test/page/invent"
)

// soon is how long something may take that waits for nothing.
const soon = 20 * time.Second

// slowly is an API server that does not answer questions about some namespaces, and reviews of some
// tokens, while the test runs. Each is told when it begins. (A reactor of the fake would hold its lock.)
type slowly struct {
	kubernetes.Interface
	ended context.Context
	begun chan string
}

func newSlowly(t *testing.T, c *cluster) *slowly {
	return &slowly{c, t.Context(), make(chan string, 1000)}
}

func (s *slowly) wait(ctx context.Context, name string) {
	if strings.HasPrefix(name, "slow-") {
		s.begun <- name
		select {
		case <-s.ended.Done():
		case <-ctx.Done():
		}
	}
}

func (s *slowly) AuthenticationV1() authenticationclient.AuthenticationV1Interface {
	return tokens{s.Interface.AuthenticationV1(), s}
}

func (s *slowly) AuthorizationV1() authorizationclient.AuthorizationV1Interface {
	return access{s.Interface.AuthorizationV1(), s}
}

type tokens struct {
	authenticationclient.AuthenticationV1Interface
	slowly *slowly
}

func (t tokens) TokenReviews() authenticationclient.TokenReviewInterface {
	return tokenReviews{t.AuthenticationV1Interface.TokenReviews(), t.slowly}
}

type tokenReviews struct {
	authenticationclient.TokenReviewInterface
	slowly *slowly
}

func (t tokenReviews) Create(ctx context.Context, r *authenticationv1.TokenReview, o metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	t.slowly.wait(ctx, r.Spec.Token)
	return t.TokenReviewInterface.Create(ctx, r, o)
}

type access struct {
	authorizationclient.AuthorizationV1Interface
	slowly *slowly
}

func (a access) SubjectAccessReviews() authorizationclient.SubjectAccessReviewInterface {
	return accessReviews{a.AuthorizationV1Interface.SubjectAccessReviews(), a.slowly}
}

type accessReviews struct {
	authorizationclient.SubjectAccessReviewInterface
	slowly *slowly
}

func (a accessReviews) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a.slowly.wait(ctx, r.Spec.ResourceAttributes.Namespace)
	return a.SubjectAccessReviewInterface.Create(ctx, r, o)
}

func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(soon):
		require.Fail(t, what+" waits")
	}
}

// While the API server is asked about a user's rights in other namespaces, the store takes events and
// other users get their answers.
func TestQuestionsDoNotStopTheStore(t *testing.T) {
	c := newSlowly(t, newCluster(append(tenant, "ann everything")...))
	h, store := servedWith(t, c)
	o := invent.Cluster(4, time.Now())
	for i := range 20 {
		claim := &resourceapi.ResourceClaim{}
		claim.Namespace, claim.Name = fmt.Sprintf("slow-%02d", i), "claim"
		claim.Status.Allocation = o.Claims[0].Status.Allocation
		require.NoError(t, store.Put(claim))
	}
	store.Step(t.Context())
	go get(h, "/pending/vision/train-9000?answer", "user-bob")
	<-c.begun
	within(t, "an event of the API server", func() { assert.NoError(t, store.Put(&o.Nodes[0])) })
	within(t, "another user", func() {
		assert.Equal(t, http.StatusOK, get(h, "/pending/vision/train-9000", "user-ann").Code)
		assert.Equal(t, http.StatusOK, get(h, "/", "user-ann").Code)
	})
}

// Strangers who guess tokens delay no user, and one connection has few guesses under way.
func TestGuessesDelayNoUser(t *testing.T) {
	c := newSlowly(t, newCluster(tenant...))
	h, _ := servedWith(t, c)
	require.Equal(t, http.StatusOK, get(h, "/", "user-bob").Code)
	guess := func(n, connection int) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://tranche.example/", nil)
		r.RemoteAddr = fmt.Sprintf("192.0.2.1:%d", connection)
		r.Header.Set("Authorization", fmt.Sprintf("Bearer slow-%d", n))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for n := range 5 * maxReviews {
		go guess(n, n)
	}
	for range maxOtherReviews {
		<-c.begun
	}
	within(t, "the user", func() {
		assert.Equal(t, http.StatusOK, get(h, "/nodes/node-0001", "user-bob").Code)
		assert.Equal(t, http.StatusOK, get(h, "/pending/vision/train-9000", "user-bob").Code)
	})
	const more = 5
	answers := make(chan *httptest.ResponseRecorder, maxUnauthenticated+more)
	for n := range maxUnauthenticated + more {
		go func() { answers <- guess(1000+n, 99) }()
	}
	for range more { // the others wait for the API server
		w := <-answers
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Empty(t, w.Body.String())
	}
}

// reader tells when something was written.
type reader struct {
	*httptest.ResponseRecorder
	wrote chan struct{}
}

func (r *reader) Write(b []byte) (int, error) {
	select {
	case r.wrote <- struct{}{}:
	default:
	}
	return r.ResponseRecorder.Write(b)
}

// A user has few pages that are kept up to date, and few requests; others have their own.
func TestOneUserDoesNotTakeEverything(t *testing.T) {
	h := served(t, newCluster(append(tenant, "ann everything")...))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	follow := func(user string) int {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "https://tranche.example/live?path=/", nil)
		r.Header.Set("Authorization", "Bearer "+user)
		w := &reader{httptest.NewRecorder(), make(chan struct{}, 1)}
		go h.ServeHTTP(w, r)
		<-w.wrote
		return w.Code
	}
	for range maxPages {
		require.Equal(t, http.StatusOK, follow("user-bob"))
	}
	assert.Equal(t, http.StatusTooManyRequests, follow("user-bob"))
	assert.Equal(t, http.StatusOK, follow("user-ann"))
	assert.Equal(t, http.StatusOK, get(h, "/", "user-bob").Code)
}

// A right that is missing is asked about as seldom as one that is there, by all at once.
func TestRightsAreAskedAboutOnce(t *testing.T) {
	c := newCluster(tenant...)
	h := served(t, c)
	codes := make(chan int, 20)
	for range cap(codes) {
		go func() { codes <- get(h, "/nodes/node-0001", "user-bob").Code }()
	}
	for range cap(codes) {
		<-codes
	}
	assert.EqualValues(t, 1, c.reviews.Load())
	counted := map[authorizationv1.ResourceAttributes]int{}
	for _, a := range c.Actions() {
		if a, ok := a.(clienttesting.CreateAction); ok && a.GetResource().Resource == "subjectaccessreviews" {
			counted[*a.GetObject().(*authorizationv1.SubjectAccessReview).Spec.ResourceAttributes]++
		}
	}
	assert.Greater(t, len(counted), 6, "in other namespaces, too")
	for of, n := range counted {
		assert.Equal(t, 1, n, of)
	}
}
