package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// certificate returns a configuration with the certificate of the files, as they are now, or with one
// that nobody has signed.
func certificate(ctx context.Context, group *errgroup.Group, dir string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if dir != "" {
		watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("read the certificate of the web page: %w", err)
		}
		group.Go(func() error { return watcher.Start(ctx) })
		config.GetCertificate = watcher.GetCertificate
		return config, nil
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("tranche-web", []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the web page: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the web page: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
