// Command tranche-web serves the web page to users of the cluster.
package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/cmd/internal/daemon"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/serve"
	"github.com/tranche-dev/tranche/pkg/usage"
	"github.com/tranche-dev/tranche/pkg/web"
	"github.com/tranche-dev/tranche/pkg/web/live"
	"github.com/tranche-dev/tranche/pkg/web/signin"
)

// version is set when the program is linked.
var version = "dev"

// maxConnections is how many browsers and proxies are connected at once.
const maxConnections = 512

type config struct {
	// address is where the page is served, httpAddress metrics and health checks.
	address, httpAddress string
	// certDir has tls.crt and tls.key. If it is empty, the page has a certificate of its own.
	certDir string
	// namespace is that of Tranche.
	namespace string
}

func main() { daemon.Main(command()) }

func command() *cobra.Command {
	var c config
	return daemon.Program{
		Name: "tranche-web", Short: "The web page of Tranche, for users of the cluster", Version: version,
		Flags: c.addFlags,
		Check: func() error {
			if c.namespace == "" {
				return errors.New("--system-namespace is not set, and neither is POD_NAMESPACE in the environment")
			}
			return nil
		},
		Run: c.run,
	}.Command()
}

func (c *config) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.address, "address", ":8443", "address of the page, over TLS")
	flags.StringVar(&c.httpAddress, "http-address", ":8080", "address of /metrics, /healthz and /readyz")
	flags.StringVar(&c.certDir, "cert-dir", "", "directory with tls.crt and tls.key of the page; empty: a certificate that nobody has signed")
	flags.StringVar(&c.namespace, "system-namespace", os.Getenv("POD_NAMESPACE"), "namespace of Tranche; default: POD_NAMESPACE")
}

func (c *config) run(ctx context.Context, api *rest.Config) error {
	// Who waits for an answer of the API server is limited, how often it is asked is not.
	api.QPS = -1
	clients, err := read.NewClients(api)
	if err != nil {
		return err
	}
	store, guard := live.New(time.Now), signin.New(clients.Kubernetes)
	used := live.NewHistory(usageReader(clients.Kubernetes, c.namespace))
	page, err := web.New(web.Options{Source: store, Usage: used, Viewer: guard.Viewer, User: guard.User, Why: store.Explain, Requested: clients.Requested, Now: time.Now})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	encrypted, err := certificate(ctx, group, c.certDir)
	if err != nil {
		return err
	}
	pages, err := serve.Listen(ctx, "tcp", c.address, maxConnections)
	if err != nil {
		return err
	}
	endpoints, err := serve.Listen(ctx, "tcp", c.httpAddress, serve.Few)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Serving the web page", "address", pages.Addr().String())
	server := serve.New(guard.Handler(page))
	server.TLSConfig = encrypted
	group.Go(func() error { return serve.Run(ctx, server, pages) })
	group.Go(func() error { return serve.Run(ctx, serve.New(serve.Endpoints(metrics(), ready(store))), endpoints) })
	group.Go(func() error {
		store.Follow(ctx, clients, "")
		return nil
	})
	group.Go(func() error {
		used.Run(ctx)
		return nil
	})
	return group.Wait()
}

// ready reports whether there is something to show.
func ready(store *live.Store) func(context.Context) error {
	return func(context.Context) error {
		if !store.Snapshot().Complete {
			return errors.New("the objects of the cluster are being read")
		}
		return nil
	}
}

func metrics() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// errUnread is why users see no use of GPUs. What a node answers, and where it was asked, is for the
// log: a node could have led this program elsewhere.
var errUnread = errors.New("the metrics of the node's plugin cannot be read; the log of tranche-web says why")

// usageReader reads how busy the GPUs of a node are, from its plugin.
func usageReader(k kubernetes.Interface, namespace string) live.UsageReader {
	from := usage.Reader{Kubernetes: k, Namespace: namespace, Ask: usage.Direct}
	return func(ctx context.Context, node string) (usage.Node, error) {
		read, err := from.Node(ctx, node)
		if err == nil || errors.Is(err, usage.ErrNoPlugin) || errors.Is(err, usage.ErrNothing) {
			return read, err
		}
		klog.FromContext(ctx).Info("Cannot read how busy the GPUs of a node are", "node", node, "err", err.Error())
		return usage.Node{}, errUnread
	}
}
