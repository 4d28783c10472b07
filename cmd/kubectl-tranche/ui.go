package main

import (
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/usage"
	"github.com/tranche-dev/tranche/pkg/web"
	"github.com/tranche-dev/tranche/pkg/web/live"
	"github.com/tranche-dev/tranche/pkg/why"
)

const uiLong = `Serve a web page on this machine until Ctrl-C: the GPUs of all nodes as a heat map,
their partitions and holders, pods that wait and why, rollouts and switches, and
what fits now. It follows the cluster.

The page shows what your own permissions allow, and only reads. It listens on
127.0.0.1, and its address has a random token: who does not know it sees nothing.

Requires permission to list ResourceSlices. With permission to list and watch
ResourceClaims, DeviceClasses, DeviceTaintRules, nodes, pods, GPUNodes and
PartitionPlans, the page is more complete, and with what kubectl tranche top
requires, it shows how busy GPUs are. It says what it could not read.`

func newUICommand(o *options) *cobra.Command {
	port, open, system := 0, false, ""
	cmd := &cobra.Command{
		Use:     "ui",
		Short:   "Serve a web page of the cluster's GPUs on this machine",
		Long:    uiLong,
		Example: "  # Serve the page, and open it in the browser\n  kubectl tranche ui --open",
		Args:    cobra.NoArgs,
		RunE:    o.connected(func(ctx context.Context, s *session, _ []string) error { return s.ui(ctx, system, port, open) }),
	}
	cmd.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1; 0 means any free port")
	cmd.Flags().StringVar(&system, "system-namespace", "", "namespace of Tranche (default: the one that its DeviceClasses name)")
	cmd.Flags().BoolVar(&open, "open", false, "open the page in the browser")
	return cmd
}

func (s *session) ui(ctx context.Context, system string, port int, open bool) error {
	// Without them there is nothing to see; the error says what to ask for.
	if err := s.mayListSlices(ctx); err != nil {
		return err
	}
	loopback, err := web.Listen(ctx, port)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	store, used := live.New(time.Now), live.NewHistory(s.usageReader(system))
	page, err := web.New(web.Options{Base: loopback.Base, Source: store, Usage: used, Why: s.explain, Requested: s.Requested, Now: time.Now})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "Serving %s\nEverybody who knows this address sees what you may see. Ctrl-C ends it.\n", loopback.URL())
	if open {
		forget, err := openPage(ctx, loopback.URL())
		if err != nil {
			fmt.Fprintf(s.out, "The browser could not be opened: %v\n", err)
		}
		defer forget()
	}
	var following sync.WaitGroup
	following.Go(func() { store.Follow(ctx, s, s.namespace) })
	following.Go(func() { used.Run(ctx) })
	err = loopback.Serve(ctx, page)
	stop()
	following.Wait()
	return err
}

// usageReader reads how busy the GPUs of a node are, as `top` does. The namespace of Tranche is
// looked up when it is needed first.
func (c connection) usageReader(system string) live.UsageReader {
	var known atomic.Pointer[string]
	known.Store(&system)
	return func(ctx context.Context, node string) (usage.Node, error) {
		found, err := c.systemNamespace(ctx, *known.Load())
		if err != nil {
			return usage.Node{}, err
		}
		known.Store(&found)
		return usage.Reader{Kubernetes: c.Kubernetes, Namespace: found}.Node(ctx, node)
	}
}

// explain explains a pod as `why` does.
func (c connection) explain(ctx context.Context, _ overview.Viewer, namespace, pod string) (*why.Explanation, error) {
	return newWhyReader(c, namespace, time.Now()).explainPod(ctx, pod)
}

// openPage opens a page in the browser. The browser gets the name of a file that only the user may
// read: all users of a machine can see the arguments of its programs.
func openPage(ctx context.Context, url string) (forget func(), err error) {
	forget = func() {}
	dir, err := os.MkdirTemp("", "tranche-ui-")
	if err != nil {
		return forget, err
	}
	forget = func() { _ = os.RemoveAll(dir) }
	file := filepath.Join(dir, "open.html")
	text := fmt.Sprintf("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=%s\">\n", html.EscapeString(url))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return forget, err
	}
	program := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if program == nil {
		program = []string{"xdg-open"}
	}
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], file)...) //nolint:gosec // the program is one of three
	if err := cmd.Start(); err != nil {
		return forget, err
	}
	go func() { _ = cmd.Wait() }() // it may last as long as the browser
	return forget, nil
}
