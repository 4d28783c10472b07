package scrape

import (
	"net/http"
	"strings"
)

// Stay is a transport to the API server with which no plugin leads elsewhere. The API server passes
// on where the pod behind pods/proxy redirects to (apimachinery, pkg/util/proxy/transport.go), and
// client-go would send its credentials there.
func Stay(to http.RoundTripper) http.RoundTripper { return stay{to} }

type stay struct{ to http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s stay) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.to.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/proxy/"+metricsPath) {
		answer.Header.Del("Location")
	}
	return answer, err //nolint:wrapcheck // it is as it came
}

// WrappedRoundTripper is for client-go, which looks through transports.
func (s stay) WrappedRoundTripper() http.RoundTripper { return s.to }
