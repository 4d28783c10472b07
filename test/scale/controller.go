package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/test/controlplane"
)

// controller is the program, run as its Deployment says, outside of a pod.
type controller struct {
	*controlplane.Program
	ready string
}

// startController runs the program with the flags and the rights of the Deployment.
func (c *cluster) startController(ctx context.Context) (*controller, error) {
	deployment, err := c.Core.AppsV1().Deployments(controlplane.Namespace).Get(ctx, controlplane.Release+"-controller", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod := &deployment.Spec.Template.Spec
	folders, err := c.writeVolumes(ctx, pod)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.kubeconfigOf(ctx, pod.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	health, err := controlplane.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	p := &controller{ready: "http://" + health + "/readyz"}
	p.Program, err = c.StartProgram(ctx, "tranche-controller", c.controller, environment(pod.Containers[0].Env),
		flagsOutside(pod.Containers[0].Args, folders, map[string]string{
			"--kubeconfig": kubeconfig, "--system-namespace": controlplane.Namespace, "--metrics-address": "0", "--health-address": health, "--v": "4",
		})...)
	if err != nil {
		return nil, fmt.Errorf("start the controller (make build makes it): %w", err)
	}
	if err := p.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// flagsOutside are the flags of a container for a program outside of it: folders are
// elsewhere, and some flags are others.
func flagsOutside(args []string, folders, instead map[string]string) []string {
	var out []string
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if _, ok := instead[name]; ok {
			continue
		}
		if name == "--profiles-dir" {
			dirs := strings.Split(value, ",")
			for i, dir := range dirs {
				if there, ok := folders[dir]; ok {
					dirs[i] = there
				}
			}
			arg = name + "=" + strings.Join(dirs, ",")
		}
		out = append(out, arg)
	}
	for name, value := range instead {
		out = append(out, name+"="+value)
	}
	return out
}

// environment is what a container's says outright.
func environment(env []corev1.EnvVar) []string {
	var out []string
	for _, e := range env {
		if e.ValueFrom == nil {
			out = append(out, e.Name+"="+e.Value)
		}
	}
	return out
}

// writeVolumes writes the ConfigMaps that a pod mounts, and returns the folders by where
// they are mounted.
func (c *cluster) writeVolumes(ctx context.Context, pod *corev1.PodSpec) (map[string]string, error) {
	folders := map[string]string{}
	for _, volume := range pod.Volumes {
		if volume.ConfigMap == nil {
			continue
		}
		content, err := c.Core.CoreV1().ConfigMaps(controlplane.Namespace).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		dir := c.Own("volumes", volume.Name)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
		for name, text := range content.Data {
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
		for _, mount := range pod.Containers[0].VolumeMounts {
			if mount.Name == volume.Name {
				folders[mount.MountPath] = dir
			}
		}
	}
	return folders, nil
}

// kubeconfigOf writes a kubeconfig with a token of a service account.
func (c *cluster) kubeconfigOf(ctx context.Context, account string) (string, error) {
	token, err := c.Core.CoreV1().ServiceAccounts(controlplane.Namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](6 * 3600)},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of %s: %w", account, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["scale"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos["scale"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["scale"] = &clientcmdapi.Context{Cluster: "scale", AuthInfo: "scale"}
	config.CurrentContext = "scale"
	path := c.Own(account + ".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

func (p *controller) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ready, nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.Exited:
			return fmt.Errorf("the controller has ended; its log is %s", p.Log)
		case <-ctx.Done():
			return fmt.Errorf("the controller does not become ready; its log is %s: %w", p.Log, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
