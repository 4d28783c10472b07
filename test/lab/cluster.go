package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/test/controlplane"
)

const (
	// AssetsVariable names the folder of the programs of Kubernetes and of helm (make
	// cluster-parts makes it).
	AssetsVariable = "KUBEBUILDER_ASSETS"
	// Namespace is the chart's.
	Namespace = "tranche-system"
	// Release is the release of the chart.
	Release = "tranche"

	startPatience = 5 * time.Minute
)

// Options say what the cluster is like.
type Options struct {
	// Assets is the folder that AssetsVariable names.
	Assets string
	// Chart is the folder of the chart, Values are more arguments of `helm install`.
	Chart  string
	Values []string
	// GatesOff are feature gates of Kubernetes that are turned off.
	GatesOff []string
}

// gates is the programs' argument of feature gates.
func (o *Options) gates() string {
	var all []string
	for _, gate := range o.GatesOff {
		all = append(all, gate+"=false")
	}
	return strings.Join(all, ",")
}

// Cluster is one that runs.
type Cluster struct {
	// Config has all rights, and no limit of calls.
	Config  *rest.Config
	Core    kubernetes.Interface
	Tranche client.Interface
	// Dir has the files of the cluster. Its path is short, because the paths of sockets are
	// limited to 108 characters.
	Dir string

	options  Options
	env      *envtest.Environment
	programs []*exec.Cmd
}

// Start starts the control plane and installs the chart. Stop ends it, also after an error.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	c, err := newCluster(o)
	if err != nil {
		return nil, err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"start the API server", c.startAPI},
		{"install the chart", c.installChart},
		{"start the scheduler and the controllers", c.startPrograms},
		{"wait for the admission policies", c.awaitPolicies},
	} {
		if err := step.do(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", step.what, err), c.Stop())
		}
	}
	return c, nil
}

// newCluster has a folder, and nothing that runs.
func newCluster(o Options) (*Cluster, error) {
	ctrl.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "lab")
	return &Cluster{Dir: dir, options: o, env: &envtest.Environment{BinaryAssetsDirectory: o.Assets, ControlPlaneStartTimeout: startPatience}}, err
}

// Stop ends all programs of the cluster and removes its files.
func (c *Cluster) Stop() error {
	for _, p := range c.programs {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	for _, name := range []string{apiServer, etcd} {
		c.kill(name) // asked to end, it takes up to a minute
	}
	return errors.Join(c.env.Stop(), os.RemoveAll(c.Dir))
}

// Kubeconfig is the path of the administrator's.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// The programs that envtest starts.
const apiServer, etcd = "kube-apiserver", "etcd"

// starter starts a program that ends when this process does, however it ends, and writes its
// process id: envtest does neither.
const starter = `#!/bin/sh
echo $$ >%q
exec setpriv --pdeathsig KILL -- %q "$@"
`

func (c *Cluster) starter(name string) (path string, err error) {
	path = filepath.Join(c.Dir, name)
	return path, os.WriteFile(path, fmt.Appendf(nil, starter, path+".pid", filepath.Join(c.options.Assets, name)), 0o700) //nolint:gosec // it is a program
}

func (c *Cluster) kill(name string) {
	if pid, err := c.pid(name); err == nil { // it has been started
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// pid is the process of a program that envtest has started.
func (c *Cluster) pid(name string) (int, error) {
	text, err := os.ReadFile(filepath.Join(c.Dir, name+".pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func (c *Cluster) startAPI(context.Context) (err error) {
	c.env.ControlPlane.Etcd = &envtest.Etcd{}
	if c.env.ControlPlane.Etcd.Path, err = c.starter(etcd); err != nil {
		return err
	}
	if c.env.ControlPlane.GetAPIServer().Path, err = c.starter(apiServer); err != nil {
		return err
	}
	if gates := c.options.gates(); gates != "" {
		c.env.ControlPlane.GetAPIServer().Configure().Append("feature-gates", gates)
	}
	config, err := c.env.Start()
	if err != nil {
		return err
	}
	config.QPS = -1
	c.Config = config
	if c.Core, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if c.Tranche, err = client.New(config); err != nil {
		return err
	}
	admin, err := c.env.AddUser(envtest.User{Name: "lab", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	kubeconfig, err := admin.KubeConfig()
	if err != nil {
		return err
	}
	// The programs lie where those of the clusters of `make cluster-up` do.
	return errors.Join(os.WriteFile(c.Kubeconfig(), kubeconfig, 0o600), os.Symlink(c.options.Assets, filepath.Join(c.Dir, "bin")))
}

// controllers are those of Kubernetes that end what the tests begin: they make claims of
// templates and pods of workloads, evict pods of tainted devices, count disruptions and quotas,
// remove what has no owner, and give the role view its rules.
var controllers = []string{
	"resourceclaim-controller", "device-taint-eviction-controller", "disruption-controller", "garbage-collector-controller",
	"namespace-controller", "deployment-controller", "replicaset-controller", "statefulset-controller", "job-controller",
	"resourcequota-controller", "clusterrole-aggregation-controller",
}

// schedulerConfig makes the scheduler look again soon at pods that did not fit.
const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 1000, burst: 1000}
leaderElection: {leaderElect: false}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
`

func (c *Cluster) startPrograms(context.Context) error {
	config, gates := filepath.Join(c.Dir, "scheduler.yaml"), "--feature-gates="+c.options.gates()
	if err := os.WriteFile(config, fmt.Appendf(nil, schedulerConfig, c.Kubeconfig()), 0o600); err != nil {
		return err
	}
	return errors.Join(
		c.program("kube-scheduler", "--config="+config, "--secure-port=0", gates),
		c.program("kube-controller-manager", "--kubeconfig="+c.Kubeconfig(), "--leader-elect=false", "--secure-port=0",
			"--kube-api-qps=1000", "--kube-api-burst=1000", gates, "--controllers="+strings.Join(controllers, ",")),
	)
}

// program starts one that runs until Stop. It ends with this process.
func (c *Cluster) program(name string, args ...string) error {
	log, err := os.Create(filepath.Join(c.Dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()                                                 //nolint:errcheck // the program has it
	p := exec.Command(filepath.Join(c.options.Assets, name), args...) //nolint:noctx // Stop ends it
	p.Stdout, p.Stderr, p.SysProcAttr = log, log, controlplane.EndWithThis()
	if err := p.Start(); err != nil {
		return err
	}
	c.programs = append(c.programs, p)
	return nil
}

// installChart creates the chart's objects.
func (c *Cluster) installChart(ctx context.Context) error {
	return c.release(ctx, "install", "--create-namespace")
}

// SetValues upgrades the release with a value of helm's --set, in addition to [Options.Values]
// only. Plugins and controller do not take notice: they have their own options.
func (c *Cluster) SetValues(ctx context.Context, values string) error {
	return c.release(ctx, "upgrade", "--set", values)
}

// release installs or upgrades the chart, and removes what would start its programs.
func (c *Cluster) release(ctx context.Context, command string, args ...string) error {
	args = append([]string{command, Release, c.options.Chart, "--no-hooks"}, args...)
	for _, program := range []string{"controller", "scheduler", "webPage"} {
		args = append(args, "--set", program+".nodeSelector.lab=none") // for as long as there are Deployments
	}
	if err := c.helm(ctx, args...); err != nil {
		return err
	}
	return errors.Join(
		c.Core.AppsV1().Deployments(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		c.Core.AppsV1().DaemonSets(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
	)
}

func (c *Cluster) helm(ctx context.Context, args ...string) error {
	args = append(append(args, "--namespace", Namespace, "--kubeconfig", c.Kubeconfig(), "--qps", "1000", "--burst-limit", "1000"), c.options.Values...)
	if out, err := exec.CommandContext(ctx, filepath.Join(c.options.Assets, "helm"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
