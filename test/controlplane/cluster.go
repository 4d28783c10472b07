package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// Namespace is the chart's.
	Namespace = "tranche-system"
	// Release is the prefix of the names of the chart's objects.
	Release = "tranche"
)

// startPatience is how long a command may take that is run for a cluster.
const startPatience = 5 * time.Minute

// Launcher starts clusters in a folder, one after the other.
type Launcher struct {
	// Tool is the program that starts clusters, as make cluster-tool leaves it.
	Tool string
	// Dir is the folder of the cluster. It must be absolute.
	Dir string
}

// Cluster is one that runs, as an administrator sees it.
type Cluster struct {
	*Launcher
	Config *rest.Config
	Core   kubernetes.Interface
}

// Up starts a cluster with these arguments of the tool's "up". Down ends it.
func (l *Launcher) Up(ctx context.Context, args ...string) (*Cluster, error) {
	l.Down(ctx) // what an earlier run may have left
	if err := l.Command(ctx, l.Tool, append([]string{"up", "--dir", l.Dir}, args...)...); err != nil {
		return nil, fmt.Errorf("start a cluster (make cluster-parts builds what it needs): %w", err)
	}
	c, err := l.connect()
	if err != nil {
		l.Down(ctx)
	}
	return c, err
}

func (l *Launcher) connect() (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // what is measured must not wait for the measuring
	core, err := kubernetes.NewForConfig(config)
	return &Cluster{Launcher: l, Config: config, Core: core}, err
}

// Down ends the cluster, also where ctx has ended. It tells errors on standard error.
func (l *Launcher) Down(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := l.Command(ctx, l.Tool, "down", "--dir", l.Dir); err != nil {
		fmt.Fprintln(os.Stderr, "The cluster could not be ended:", err)
	}
	if err := os.RemoveAll(l.Own()); err != nil {
		fmt.Fprintln(os.Stderr, "The files beside the cluster could not be removed:", err)
	}
}

// Own is the path of a file in the folder for what is written beside the cluster's own files.
func (l *Launcher) Own(elements ...string) string {
	return filepath.Join(append([]string{l.Dir, "own"}, elements...)...)
}

func (l *Launcher) kubeconfig() string { return filepath.Join(l.Dir, "kubeconfig") }

// Command runs a program with the cluster's kubeconfig. The error has what it printed.
func (l *Launcher) Command(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err), errors.New(strings.TrimSpace(string(out))))
	}
	return nil
}

// Helm runs the cluster's helm.
func (l *Launcher) Helm(ctx context.Context, args ...string) error {
	return l.Command(ctx, filepath.Join(l.Dir, "bin", "helm"), args...)
}

// InstallChart installs this repository's chart with more arguments of helm install. The working
// directory must be the repository's root.
func (l *Launcher) InstallChart(ctx context.Context, args ...string) error {
	return l.Helm(ctx, append([]string{"install", Release, "deployments/helm/tranche", "--namespace", Namespace, "--create-namespace"}, args...)...)
}

// FreeAddress is an address of this machine where nobody listens.
func FreeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
