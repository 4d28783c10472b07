package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/usage"
	"github.com/tranche-dev/tranche/pkg/usage/scrape"
	"github.com/tranche-dev/tranche/pkg/web"
	"github.com/tranche-dev/tranche/pkg/web/history"
	"github.com/tranche-dev/tranche/pkg/web/live"
	"github.com/tranche-dev/tranche/pkg/web/signin"
)

// webPage serves the web page to users of the cluster. Every controller does, not only the leader.
type webPage struct {
	api *rest.Config
	// address is where it listens, certDir has tls.crt and tls.key; empty: a certificate of its own.
	address, certDir string
	// namespace is that of Tranche.
	namespace string
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p *webPage) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (p *webPage) Start(ctx context.Context) error {
	compact := rest.CopyConfig(p.api)
	compact.ContentType, compact.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	k, err := kubernetes.NewForConfig(compact)
	if err != nil {
		return fmt.Errorf("client of the web page: %w", err)
	}
	ours, err := client.New(p.api)
	if err != nil {
		return fmt.Errorf("client of the web page: %w", err)
	}
	store, guard := live.New(time.Now), signin.New(k)
	used := history.New(usageReader(k, p.namespace))
	page, err := web.New(web.Options{Source: store, Usage: used, Viewer: guard.Viewer, User: guard.User, Why: store.Explain, Now: time.Now})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	certificate, err := p.certificate(ctx, group)
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", p.address, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: certificate})
	if err != nil {
		return fmt.Errorf("listen for the web page: %w", err)
	}
	server := &http.Server{
		Handler: guard.Handler(page), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	klog.FromContext(ctx).Info("Serving the web page", "address", listener.Addr().String())
	group.Go(func() error {
		store.Follow(ctx, live.Source{Kubernetes: k, Ours: ours})
		return nil
	})
	group.Go(func() error {
		used.Run(ctx)
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the web page: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// errUnread is why users see no use of GPUs. What a node answers, and where it was asked, is for the
// log: a node could have led the controller elsewhere.
var errUnread = errors.New("the controller cannot read the metrics of the node's plugin; its log says why")

// usageReader reads how busy the GPUs of a node are, from its plugin.
func usageReader(k kubernetes.Interface, namespace string) history.Reader {
	from := scrape.Reader{Kubernetes: k, Namespace: namespace, Ask: scrape.Direct}
	return func(ctx context.Context, node string) (usage.Node, error) {
		read, err := from.Node(ctx, node)
		if err == nil || errors.Is(err, scrape.ErrNoPlugin) || errors.Is(err, scrape.ErrNothing) {
			return read, err
		}
		klog.FromContext(ctx).Info("Cannot read how busy the GPUs of a node are", "node", node, "err", err.Error())
		return usage.Node{}, errUnread
	}
}

// certificate returns the certificate of the files, as they are now, or one that nobody has signed.
func (p *webPage) certificate(ctx context.Context, group *errgroup.Group) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if p.certDir != "" {
		watcher, err := certwatcher.New(filepath.Join(p.certDir, "tls.crt"), filepath.Join(p.certDir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("read the certificate of the web page: %w", err)
		}
		group.Go(func() error { return watcher.Start(ctx) })
		return watcher.GetCertificate, nil
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("tranche-web", []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the web page: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the web page: %w", err)
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
}
