package signin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/pkg/serve"
	"github.com/tranche-dev/tranche/pkg/web"
)

const (
	// cookie keeps the token. Browsers send it over TLS, to this host and no other site only.
	cookie = "__Host-tranche-token"
	// An answer of the API server holds for acceptedTTL: a token that is revoked, or a right that is
	// granted, counts within that time. A token that nobody has is refused for rejectedTTL.
	acceptedTTL, rejectedTTL = 30 * time.Second, 5 * time.Second
	// sessionTTL is how long a token that was accepted is reviewed among those of users.
	sessionTTL = time.Hour
	// apiTimeout is how long the API server may take.
	apiTimeout = 10 * time.Second
	// maxRights is how many answers about rights are kept, maxTokens about tokens.
	maxRights, maxTokens = 16384, 4096
	// maxReviews is how many reviews of users are under way at once, maxOtherReviews how many of tokens
	// of which nothing is known: they do not delay users.
	maxReviews, maxOtherReviews = 16, 4
	// maxUnauthenticated is how many requests of one connection are under way at once of which it is not
	// known yet whose they are. Such connections replace each other.
	maxUnauthenticated = 6
	// maxRequests and maxPages are how many requests a user has under way at once, and how many pages
	// that are kept up to date.
	maxRequests, maxPages = 16, 32
	// maxTokenLength is how long a token can be.
	maxTokenLength = 16 << 10
)

// Guard lets users of the cluster see the page.
type Guard struct {
	kubernetes kubernetes.Interface
	page       *web.Server
	origin     *http.CrossOriginProtection

	// tokens are those of users, by their hashes; rejected those that nobody has.
	tokens, rejected *cache.LRUExpireCache
	access           *cache.LRUExpireCache
	tokenLocks       web.KeyedLock[hash]
	accessLocks      web.KeyedLock[accessKey]
	// reviews and otherReviews have a value for each review under way.
	reviews, otherReviews chan struct{}
	// unauthenticated requests are counted by connection, requests and pages by user.
	unauthenticated, requests, pages *web.Limiter
}

// hash identifies a token.
type hash [sha256.Size]byte

// New returns a guard. Its Viewer and User are for the options of the page that Serve gets.
func New(k kubernetes.Interface) *Guard {
	return &Guard{
		kubernetes: k, origin: http.NewCrossOriginProtection(),
		tokens: cache.NewLRUExpireCache(maxTokens), rejected: cache.NewLRUExpireCache(maxTokens), access: cache.NewLRUExpireCache(maxRights),
		reviews: make(chan struct{}, maxReviews), otherReviews: make(chan struct{}, maxOtherReviews),
		unauthenticated: web.NewLimiter(maxUnauthenticated), requests: web.NewLimiter(maxRequests), pages: web.NewLimiter(maxPages),
	}
}

// Handler guards a page.
func (g *Guard) Handler(page *web.Server) http.Handler {
	g.page = page
	return g.origin.Handler(http.HandlerFunc(g.serve))
}

func (g *Guard) serve(w http.ResponseWriter, r *http.Request) {
	web.Protect(w.Header())
	w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	if s, ok := g.session(hashOf(tokenOf(r))); ok && r.Method != http.MethodPost {
		g.serveUser(w, r, s.user.Username)
		return
	}
	end, ok := g.unauthenticated.Acquire(r.RemoteAddr)
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable) // no text, which would have to be received
		return
	}
	user := g.serveUnauthenticated(w, r)
	end()
	if user != "" {
		g.serveUser(w, r, user)
	}
}

// serveUser serves a user whose token the API server knew, if it still does.
func (g *Guard) serveUser(w http.ResponseWriter, r *http.Request, user string) {
	limit := g.requests
	if r.URL.Path == "/live" {
		limit = g.pages
	}
	end, ok := limit.Acquire(user)
	if !ok {
		http.Error(w, "you have too many pages open, or requests under way", http.StatusTooManyRequests)
		return
	}
	defer end()
	defer serve.Hold(r.Context())()
	if _, err := g.user(r.Context(), tokenOf(r)); err != nil {
		g.refuse(w, r, err)
		return
	}
	g.page.ServeHTTP(w, r)
}

// serveUnauthenticated serves who has not signed in. If the API server knows the token, it writes nothing
// and returns the user.
func (g *Guard) serveUnauthenticated(w http.ResponseWriter, r *http.Request) (user string) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/assets/"): // the page to sign in needs them
		g.page.ServeHTTP(w, r)
		return ""
	case r.Method == http.MethodPost && r.URL.Path == "/login":
		g.signIn(w, r)
		return ""
	case r.Method == http.MethodPost && r.URL.Path == "/logout":
		http.SetCookie(w, &http.Cookie{Name: cookie, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return ""
	}
	known, err := g.user(r.Context(), tokenOf(r))
	if err != nil {
		g.refuse(w, r, err)
		return ""
	}
	return known.Username
}

// refuse answers a request whose user is not known.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case !errors.Is(err, errUnknown):
		http.Error(w, "the API server could not be asked who you are", http.StatusServiceUnavailable)
	case r.URL.Path == "/live" || r.URL.Query().Has("answer"):
		http.Error(w, "sign in first", http.StatusUnauthorized)
	default:
		g.page.SignIn(w, r, r.URL.RequestURI(), "")
	}
}

// signIn keeps a token in a cookie if the API server knows it.
func (g *Guard) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxTokenLength+4096)
	token, to := strings.TrimSpace(r.PostFormValue("token")), local(r.PostFormValue("to"))
	_, err := g.user(r.Context(), token)
	switch {
	case errors.Is(err, errUnknown):
		g.page.SignIn(w, r, to, "The API server does not accept this token. It may have expired.")
	case err != nil:
		g.page.SignIn(w, r, to, "The API server could not be asked about the token. Try again.")
	default:
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: url.QueryEscape(token), Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, to, http.StatusSeeOther)
	}
}

// local returns a path of this page, whatever is asked for.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.ContainsRune(u.Path, '\\') {
		return "/"
	}
	return u.RequestURI()
}

// tokenOf returns the token of a request: of a proxy that signs users in, or of the cookie.
func tokenOf(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(token)
	}
	if c, err := r.Cookie(cookie); err == nil {
		if token, err := url.QueryUnescape(c.Value); err == nil {
			return token
		}
	}
	return ""
}

// errUnknown: the API server does not know the token.
var errUnknown = errors.New("unknown token")

// session is a token that the API server knew.
type session struct {
	user *authenticationv1.UserInfo
	// until is how long that holds.
	until time.Time
}

func hashOf(token string) hash { return sha256.Sum256([]byte(token)) }

// session returns the session of a token that the API server knew within the last hour.
func (g *Guard) session(of hash) (session, bool) {
	v, _ := g.tokens.Get(of)
	s, ok := v.(session)
	return s, ok
}

// recent returns the user of a token that the API server knew a moment ago, nil if it is another one.
func (g *Guard) recent(of hash) *authenticationv1.UserInfo {
	if s, ok := g.session(of); ok && time.Now().Before(s.until) {
		return s.user
	}
	return nil
}

// user asks the API server whose token it is.
func (g *Guard) user(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	if token == "" || len(token) > maxTokenLength {
		return nil, errUnknown
	}
	of := hashOf(token)
	if user := g.recent(of); user != nil {
		return user, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	done, err := g.tokenLocks.Lock(ctx, of)
	if err != nil {
		return nil, err
	}
	defer done()
	if user := g.recent(of); user != nil {
		return user, nil
	}
	if _, ok := g.rejected.Get(of); ok {
		return nil, errUnknown
	}
	slots := g.otherReviews
	if _, ok := g.session(of); ok {
		slots = g.reviews
	}
	if done, err = acquire(ctx, slots); err != nil {
		return nil, err
	}
	defer done()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err = g.kubernetes.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a TokenReview: %w", err)
	}
	if !review.Status.Authenticated {
		g.tokens.Remove(of)
		g.rejected.Add(of, true, rejectedTTL)
		return nil, errUnknown
	}
	g.tokens.Add(of, session{&review.Status.User, time.Now().Add(acceptedTTL)}, sessionTTL)
	return &review.Status.User, nil
}

// acquire waits for a slot.
func acquire(ctx context.Context, slots chan struct{}) (release func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
