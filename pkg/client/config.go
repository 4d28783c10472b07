package client

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config says how to reach the API server: by a kubeconfig file, or, if that is empty,
// by the pod's service account. The user agent is what the server's log has. Limits of
// the rate of calls are the caller's to set.
func Config(kubeconfig, userAgent string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("find out how to reach the API server: %w", err)
	}
	config.UserAgent = userAgent
	return config, nil
}
