package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// podPatience is how long the scheduler may take for all pods that are waiting.
const podPatience = 10 * time.Minute

// Scheduler is a kube-scheduler that runs beside the cluster.
type Scheduler struct {
	*Program
	// client reads from its address with the rights of the cluster's administrator.
	client  *http.Client
	address string
}

// StartScheduler starts the cluster's scheduler as its control plane would, outside of
// the cluster's network, where its CPU time can be read. configuration is a
// KubeSchedulerConfiguration, or nil for the scheduler's defaults. Its settings for the API
// server and for leader election are replaced.
func (c *Cluster) StartScheduler(ctx context.Context, configuration map[string]any) (*Scheduler, error) {
	out, err := exec.CommandContext(ctx, c.Tool, "path").Output()
	if err != nil {
		return nil, fmt.Errorf("find the scheduler's program: %w", err)
	}
	config, err := clientcmd.LoadFromFile(filepath.Join(c.Dir, "pki", "kube-scheduler.kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's credentials: %w", err)
	}
	for _, api := range config.Clusters {
		api.Server = c.Config.Host
	}
	kubeconfig := c.Own("kube-scheduler.kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	address, err := FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(address, ":")
	args := []string{
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + port,
	}
	if configuration == nil {
		args = append(args, "--kubeconfig="+kubeconfig, "--leader-elect=false")
	} else {
		file, err := c.writeConfiguration(configuration, kubeconfig)
		if err != nil {
			return nil, err
		}
		args = append(args, "--config="+file)
	}
	admin := rest.CopyConfig(c.Config)
	// It has a certificate of its own making.
	admin.Insecure, admin.CAData, admin.CAFile = true, nil, ""
	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		return nil, err
	}
	p, err := c.StartProgram(ctx, "kube-scheduler", filepath.Join(strings.TrimSpace(string(out)), "kube-scheduler"), nil, args...)
	if err != nil {
		return nil, fmt.Errorf("start the scheduler: %w", err)
	}
	s := &Scheduler{p, client, "https://" + address}
	return s, s.awaitReady(ctx)
}

// awaitReady waits until the scheduler answers.
func (s *Scheduler) awaitReady(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startPatience, true, func(ctx context.Context) (bool, error) {
		_, err := s.Read(ctx, "/readyz")
		return err == nil, s.ended()
	})
	if err != nil {
		return fmt.Errorf("wait for the scheduler to start (log: %s): %w", s.Log, err)
	}
	return nil
}

// Read reads a path of the scheduler's address, such as "/metrics".
func (s *Scheduler) Read(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read from the scheduler: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("read %s of the scheduler: %s: %.200s", path, response.Status, body)
	}
	return body, err
}

// AwaitTried waits until the scheduler has nothing more to do: each pod of the default namespace
// has a node, or was tried and waits for something to change. It returns those that wait.
func (c *Cluster) AwaitTried(ctx context.Context, s *Scheduler) (waiting map[string]bool, err error) {
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, podPatience, true, func(ctx context.Context) (bool, error) {
		if err := s.ended(); err != nil {
			return false, err
		}
		unbound, err := c.unbound(ctx)
		if err != nil {
			return false, err
		}
		text, err := s.Read(ctx, "/metrics")
		if err != nil {
			return false, err
		}
		queues, err := parseQueues(string(text))
		if err != nil {
			return false, err
		}
		waiting = map[string]bool{}
		for i := range unbound {
			waiting[unbound[i].Name] = true
		}
		// A pod that is being tried or bound is in no queue.
		return queues["active"] == 0 && queues["backoff"] == 0 && queues["unschedulable"] == len(waiting), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the scheduler to try all pods (log: %s): %w", s.Log, err)
	}
	return waiting, nil
}

// parseQueues reads scheduler_pending_pods, by queue.
func parseQueues(text string) (map[string]int, error) {
	metrics, err := parseMetrics(text, "scheduler_pending_pods")
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's metrics: %w", err)
	}
	all := map[string]int{}
	for _, m := range metrics {
		all[label(m, "queue")] = int(m.GetGauge().GetValue())
	}
	if len(all) == 0 {
		return nil, errors.New("the scheduler's metrics have no scheduler_pending_pods")
	}
	return all, nil
}

func (s *Scheduler) ended() error {
	select {
	case <-s.Exited:
		return errors.New("the scheduler has ended")
	default:
		return nil
	}
}

// unbound are the pods of the default namespace that have no node.
func (c *Cluster) unbound(ctx context.Context) ([]corev1.Pod, error) {
	list, err := c.Core.CoreV1().Pods(corev1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// writeConfiguration writes the scheduler's file. With it, the scheduler ignores the flags for
// the same settings.
func (c *Cluster) writeConfiguration(configuration map[string]any, kubeconfig string) (string, error) {
	configuration["clientConnection"] = map[string]any{"kubeconfig": kubeconfig}
	configuration["leaderElection"] = map[string]any{"leaderElect": false}
	data, err := yaml.Marshal(configuration)
	if err != nil {
		return "", err
	}
	file := c.Own("kube-scheduler.yaml")
	return file, os.WriteFile(file, data, 0o600)
}

// AwaitBound waits until the scheduler has bound all pods of the default namespace.
func (c *Cluster) AwaitBound(ctx context.Context, scheduler *Scheduler) error {
	left := 0
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, podPatience, false, func(ctx context.Context) (bool, error) {
		if err := scheduler.ended(); err != nil {
			return false, err
		}
		waiting, err := c.unbound(ctx)
		if err == nil {
			left = len(waiting)
		}
		return left == 0, err
	})
	if err != nil {
		return fmt.Errorf("%d pods are not scheduled (log: %s): %w", left, scheduler.Log, err)
	}
	return nil
}
