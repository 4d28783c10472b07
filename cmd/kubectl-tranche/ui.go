package main

import (
	"context"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/web"
	"github.com/tranche-dev/tranche/pkg/web/live"
	"github.com/tranche-dev/tranche/pkg/web/view"
	"github.com/tranche-dev/tranche/pkg/why"
)

const uiLong = `Serve a web page on this machine until Ctrl-C: the GPUs of all nodes as a heat map,
their partitions and holders, pods that wait and why, rollouts and switches, and
what fits now. It follows the cluster.

The page shows what your own permissions allow, and only reads. It listens on
127.0.0.1, and its address has a random token: who does not know it sees nothing.

Requires permission to list ResourceSlices. With permission to list and watch
ResourceClaims, DeviceClasses, DeviceTaintRules, nodes, pods, GPUNodes and
PartitionPlans, the page is more complete. It says what it could not read.`

func newUICommand(o *options, out io.Writer) *cobra.Command {
	port, open := 0, false
	cmd := &cobra.Command{
		Use:           "ui",
		Short:         "Serve a web page of the cluster's GPUs on this machine",
		Long:          uiLong,
		Example:       "  # Serve the page, and open it in the browser\n  kubectl tranche ui --open",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.ui(cmd.Context(), out, port, open) },
	}
	cmd.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1; 0: any that is free")
	cmd.Flags().BoolVar(&open, "open", false, "open the page in the browser")
	return cmd
}

func (o *options) ui(ctx context.Context, out io.Writer, port int, open bool) error {
	c, namespace, err := o.connect()
	if err != nil {
		return err
	}
	// Without them there is nothing to see; the error says what to ask for.
	if _, err := c.kubernetes.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return slicesError(err)
	}
	loopback, err := web.Listen(ctx, port)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	store := live.New(time.Now)
	page, err := web.New(web.Options{Base: loopback.Base, Source: store, Why: c.explain, Now: time.Now})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Serving %s\nEverybody who knows this address sees what you may see. Ctrl-C ends it.\n", loopback.URL())
	if open {
		forget, err := openPage(ctx, loopback.URL())
		if err != nil {
			fmt.Fprintf(out, "The browser could not be opened: %v\n", err)
		}
		defer forget()
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		store.Follow(ctx, live.Source{Kubernetes: c.kubernetes, Ours: c.ours, Namespace: namespace})
	}()
	err = loopback.Serve(ctx, page)
	stop()
	<-followed
	return err
}

// explain explains a pod as `why` does.
func (c connection) explain(ctx context.Context, _ view.Viewer, namespace, pod string) (*why.Explanation, error) {
	r := newWhyReader(c, namespace, time.Now())
	in, err := r.read(ctx, pod)
	switch {
	case apierrors.IsNotFound(err):
		return why.ExplainAbsence(r.absent(ctx, pod)), nil
	case err != nil:
		return nil, err
	}
	return why.Explain(ctx, in), nil
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
