package usage

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node can neither lead the controller to the machine on which it runs, nor to its link, nor with
// a mirror pod.
func TestDirectAsksPlugins(t *testing.T) {
	yes := true
	pod := func(ip, api, kind string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: api, Kind: kind, Controller: &yes}}}}
		p.Status.PodIP = ip
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: portName, ContainerPort: 8080}}}}
		return p
	}
	ctx, end := context.WithCancel(t.Context())
	end() // nobody is called
	for _, ip := range []string{"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"} {
		_, err := Direct(ctx, pod(ip, "apps/v1", "DaemonSet"), nil)
		require.ErrorContains(t, err, "is not the address of a pod", ip)
	}
	for _, ip := range []string{"", "host", "10.0.0.1:80", "10.0.0.1@x"} {
		_, err := Direct(ctx, pod(ip, "apps/v1", "DaemonSet"), nil)
		require.ErrorContains(t, err, "has no address", ip)
	}
	for _, p := range []*corev1.Pod{pod("10.0.0.1", "v1", "Node"), pod("10.0.0.1", "apps/v1", "ReplicaSet"), pod("10.0.0.1", "mine/v1", "DaemonSet"), {}} {
		_, err := Direct(ctx, p, nil)
		require.ErrorIs(t, err, errNotOurs)
	}
	portless := pod("10.0.0.1", "apps/v1", "DaemonSet")
	portless.Spec.Containers = nil
	_, err := Direct(ctx, portless, nil)
	require.ErrorIs(t, err, errNoPort)
	for _, ip := range []string{"10.0.0.1", "fd00::1"} {
		_, err := Direct(ctx, pod(ip, "apps/v1", "DaemonSet"), nil)
		require.ErrorIs(t, err, context.Canceled, ip)
	}
}

func TestGet(t *testing.T) {
	at := http.NewServeMux()
	at.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, []string{"a", "b"}, r.URL.Query()["name[]"])
		assert.Empty(t, r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, "x 1")
	})
	server := httptest.NewServer(at)
	defer server.Close()
	ask := func(address string) (string, error) {
		body, err := get(t.Context(), direct, strings.TrimPrefix(address, "http://"), url.Values{"name[]": {"a", "b"}})
		if err != nil {
			return "", err
		}
		defer body.Close()
		text, err := io.ReadAll(body)
		return string(text), err
	}
	text, err := ask(server.URL)
	require.NoError(t, err)
	assert.Equal(t, "x 1", text)

	for _, code := range []int{301, 302, 303, 307, 308, 404, 500} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", server.URL+"/metrics")
			w.WriteHeader(code)
		}))
		_, err := ask(other.URL)
		other.Close()
		require.ErrorContains(t, err, http.StatusText(code), "a redirect is not followed")
	}
}
