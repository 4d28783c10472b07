package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/serve"
)

const (
	// reportSockets matches the sockets of plugins. During a rolling update there are two.
	reportSockets = "report-*.sock"
	// reportTimeout is how long the hardware may take to answer.
	reportTimeout = 30 * time.Second
	jsonType      = "application/json"
)

// serveReport answers `tranche-kubelet-plugin hardware` until ctx ends. Only root on the node can
// connect to the socket, because the report names claims and processes.
func (p *plugin) serveReport(ctx context.Context) error {
	path := filepath.Join(p.DataDir(), strings.ReplaceAll(reportSockets, "*", p.instance()))
	return serveSocket(ctx, path, http.HandlerFunc(p.answerReport))
}

// instance tells the sockets of this plugin from those of another one on the node.
func (c *Config) instance() string { return cmp.Or(string(c.PodUID), strconv.Itoa(os.Getpid())) }

// serveSocket serves HTTP on a socket until ctx ends, to root on the node.
func serveSocket(ctx context.Context, path string, handler http.Handler) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the old socket %s: %w", path, err)
	}
	listener, err := serve.Listen(ctx, "unix", path, serve.Few)
	if err != nil {
		return err
	}
	listener.Listener = sameUser{listener.Listener}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("restrict socket %s to root: %w", path, err), listener.Close())
	}
	server := serve.New(handler)
	go func() {
		if err := serve.Run(ctx, server, listener); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot serve a socket any more", "socket", path)
		}
	}()
	return nil
}

// sameUser accepts connections of the user that this process runs as, which is root on a node. The
// kernel says who has connected (SO_PEERCRED): the mode of a socket counts only where its folder is
// mounted.
type sameUser struct{ net.Listener }

// Accept implements net.Listener.
func (l sameUser) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || userOf(c) == os.Geteuid() {
			return c, err //nolint:wrapcheck // http.Server looks at it
		}
		_ = c.Close()
	}
}

// userOf returns the user of a connection's other end, -1 if it is not known.
func userOf(c net.Conn) int {
	user := -1
	if socket, ok := c.(*net.UnixConn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
					user = int(cred.Uid)
				}
			})
		}
	}
	return user
}

func (p *plugin) answerReport(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), reportTimeout)
	defer cancel()
	report := p.monitor.hardwareReport(ctx)
	write := report.writeText
	if r.Header.Get("Accept") == jsonType {
		w.Header().Set("Content-Type", jsonType)
		write = func(w io.Writer) error { return json.NewEncoder(w).Encode(report) }
	}
	if err := write(w); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot send the hardware report")
	}
}

// PrintReport asks the plugin whose sockets are in a folder for its report, and prints that.
func PrintReport(ctx context.Context, dir string, out io.Writer, asJSON bool) error {
	sockets, err := filepath.Glob(filepath.Join(dir, reportSockets))
	if err != nil {
		return fmt.Errorf("look for the plugin: %w", err)
	}
	var errs []error
	for _, socket := range sockets {
		err := printReportFrom(ctx, socket, out, asJSON)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return fmt.Errorf("no plugin with GPUs is at work on this node (no %s in %s); if the kubelet's folder is another one, name it with --kubelet-dir", reportSockets, dir)
	}
	return errors.Join(errs...)
}

func printReportFrom(ctx context.Context, socket string, out io.Writer, asJSON bool) error {
	client := &http.Client{Timeout: reportTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://plugin/", http.NoBody)
	if err != nil {
		return err
	}
	if asJSON {
		request.Header.Set("Accept", jsonType)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the plugin: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("the plugin at %s answers with an error: %s", socket, reason)
	}
	_, err = io.Copy(out, response.Body)
	return err
}
