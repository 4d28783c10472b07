package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// api is a client of the API server for the few things that the launcher asks:
// client-go would take a minute to compile.
type api struct {
	url    string
	client *http.Client
}

func (c *Cluster) newAPI() (*api, error) {
	pair, err := tls.LoadX509KeyPair(c.path("pki", "admin.crt"), c.path("pki", "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("read the administrator's certificate: %w", err)
	}
	authority, err := os.ReadFile(c.path("pki", "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &api{
		url: fmt.Sprintf("https://127.0.0.1:%d", c.settings.Port),
		client: &http.Client{
			Timeout: 10 * time.Second,
			Transport: &http.Transport{
				Proxy:           nil, // never through a proxy of the environment
				TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
			},
		},
	}, nil
}

func (a *api) get(ctx context.Context, path string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(body, answer)
}

// nodeStatus is what the launcher reads of a Node.
type nodeStatus struct {
	Status struct {
		NodeInfo struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
		Conditions []struct {
			Type    string `json:"type"`
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
	Spec struct {
		Taints []struct {
			Key string `json:"key"`
		} `json:"taints"`
	} `json:"spec"`
}

// nodeReady is nil when the node is ready in the given boot and takes pods.
func (a *api) nodeReady(ctx context.Context, name, boot string) error {
	var node nodeStatus
	if err := a.get(ctx, "/api/v1/nodes/"+name, &node); err != nil {
		return err
	}
	if now := node.Status.NodeInfo.BootID; now != boot {
		return fmt.Errorf("it has not been registered since its boot %s", boot)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == "node.kubernetes.io/not-ready" {
			return errors.New("it is still tainted as not ready")
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type != "Ready" {
			continue
		}
		if condition.Status == "True" {
			return nil
		}
		return errors.New(condition.Message)
	}
	return errors.New("its kubelet has not reported yet")
}

// defaultServiceAccount is nil when pods can be made in namespace default.
func (a *api) defaultServiceAccount(ctx context.Context) error {
	return a.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
}

func (a *api) ready(ctx context.Context) error { return a.get(ctx, "/readyz", nil) }
