package main

import (
	"context"
	"errors"
	"fmt"
	"net"
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
)

// controller is the program, run as its Deployment says, outside of a pod.
type controller struct {
	*program
	ready string
}

// startController runs the program with the flags and the rights of the Deployment.
func (c *cluster) startController(ctx context.Context) (*controller, error) {
	deployment, err := c.core.AppsV1().Deployments(namespace).Get(ctx, release+"-controller", metav1.GetOptions{})
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
	health, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	p := &controller{ready: "http://" + health + "/readyz"}
	p.program, err = c.startProgram(ctx, "tranche-controller", c.controller, environment(pod.Containers[0].Env),
		flagsOutside(pod.Containers[0].Args, folders, map[string]string{
			"--kubeconfig": kubeconfig, "--lease-namespace": namespace, "--metrics-address": "0", "--health-address": health, "--v": "4",
		})...)
	if err != nil {
		return nil, fmt.Errorf("start the controller (make build makes it): %w", err)
	}
	if err := p.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
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
		content, err := c.core.CoreV1().ConfigMaps(namespace).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		dir := c.own("volumes", volume.Name)
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
	token, err := c.core.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](6 * 3600)},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of %s: %w", account, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["scale"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos["scale"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["scale"] = &clientcmdapi.Context{Cluster: "scale", AuthInfo: "scale"}
	config.CurrentContext = "scale"
	path := c.own(account + ".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// freeAddress is one where nobody listens.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
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
		case <-p.exited:
			return fmt.Errorf("the controller has ended; its log is %s", p.log)
		case <-ctx.Done():
			return fmt.Errorf("the controller does not become ready; its log is %s: %w", p.log, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
