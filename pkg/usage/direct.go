package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// direct asks pods. It has no proxy, follows no redirect, and connects anew each time: the address
// may be another pod's by then.
var direct = &http.Client{
	Transport: &http.Transport{
		DialContext:       (&net.Dialer{Timeout: deadline}).DialContext,
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       2 * deadline,
}

// Direct asks a plugin at the address of its pod. A node could lead it elsewhere: the kubelet
// writes the addresses of pods, and creates mirror pods with any port. So the pod is one of a
// DaemonSet, which mirror pods cannot be, and the address is none that means the caller itself or
// its network link, where clouds answer with credentials.
func Direct(ctx context.Context, pod *corev1.Pod, query url.Values) (io.ReadCloser, error) {
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.APIVersion != "apps/v1" || owner.Kind != "DaemonSet" {
		return nil, errNotOurs
	}
	ip, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return nil, fmt.Errorf("the pod has no address yet: %w", err)
	}
	if ip = ip.Unmap(); !ip.IsGlobalUnicast() || ip.Zone() != "" {
		return nil, fmt.Errorf("%s is not the address of a pod", ip)
	}
	number := port(pod)
	if number == portName {
		return nil, errNoPort
	}
	return get(ctx, direct, net.JoinHostPort(ip.String(), number), query)
}

var (
	errNotOurs = errors.New("no DaemonSet has created the pod")
	errNoPort  = errors.New("no port of the pod has the name " + portName)
)

func get(ctx context.Context, client *http.Client, host string, query url.Values) (io.ReadCloser, error) {
	u := url.URL{Scheme: "http", Host: host, Path: "/" + metricsPath, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask for metrics: %w", err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for metrics: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("ask %s for metrics: it answers %s", host, answer.Status)
	}
	return answer.Body, nil
}
