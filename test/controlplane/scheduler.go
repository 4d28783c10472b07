package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// podPatience is how long the scheduler may take for all pods that are waiting.
const podPatience = 10 * time.Minute

// StartScheduler starts the cluster's scheduler as its control plane would, outside of
// the cluster's network, where its CPU time can be read. configuration is a
// KubeSchedulerConfiguration, or nil for the scheduler's defaults. Its settings for the API
// server and for leader election are replaced.
func (c *Cluster) StartScheduler(ctx context.Context, configuration map[string]any) (*Program, error) {
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
	p, err := c.StartProgram(ctx, "kube-scheduler", filepath.Join(strings.TrimSpace(string(out)), "kube-scheduler"), nil, args...)
	if err != nil {
		return nil, fmt.Errorf("start the scheduler: %w", err)
	}
	return p, nil
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
func (c *Cluster) AwaitBound(ctx context.Context, scheduler *Program) error {
	left := 0
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, podPatience, false, func(ctx context.Context) (bool, error) {
		select {
		case <-scheduler.Exited:
			return false, errors.New("the scheduler has ended")
		default:
		}
		waiting, err := c.Core.CoreV1().Pods(corev1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
		if err == nil {
			left = len(waiting.Items)
		}
		return left == 0, err
	})
	if err != nil {
		return fmt.Errorf("%d pods are not scheduled (log: %s): %w", left, scheduler.Log, err)
	}
	return nil
}
