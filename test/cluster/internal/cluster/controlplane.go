package cluster

import (
	"fmt"

	"github.com/tranche-dev/tranche/test/cluster/internal/machine"
)

const controlPlane = "control-plane"

// Names of the control plane's processes.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	scheduler         = "kube-scheduler"
	controllerManager = "kube-controller-manager"
)

// frontProxy is the name in the certificate by which aggregated API servers know the API
// server.
const frontProxy = "front-proxy-client"

const etcdURL = "http://127.0.0.1:2379"

// controlPlaneSpec is the machine of the control plane. It is the router
// between the nodes too, and passes the connections of the host's kubectl and
// those to the service `kubernetes` on to the API server: there is no
// kube-proxy, and pods reach the API server by the address that every program
// in a pod expects.
func (c *Cluster) controlPlaneSpec() machine.Spec {
	return machine.Spec{
		Name:      controlPlane,
		Dir:       c.path("machines", controlPlane),
		Addresses: []string{apiServerAddress + "/32", serviceAddress + "/32"},
		Forward:   []string{serviceAddress + ":443"},
		ForwardTo: fmt.Sprintf("%s:%d", apiServerAddress, apiServerPort),
	}
}

func (c *Cluster) etcdProcess() machine.Process {
	const peerURL = "http://127.0.0.1:2380"
	return c.process(etcd, etcd,
		"--name=default",
		"--data-dir="+c.path("machines", controlPlane, "etcd"),
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=default="+peerURL,
		"--unsafe-no-fsync", // the data need not survive the host
		"--log-level=warn",
	)
}

func (c *Cluster) apiServerProcess() machine.Process {
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=0.0.0.0", fmt.Sprintf("--secure-port=%d", apiServerPort),
		"--advertise-address=" + apiServerAddress,
		"--service-cluster-ip-range=" + servicesSubnet,
		"--tls-cert-file=" + c.path("pki", "kube-apiserver.crt"),
		"--tls-private-key-file=" + c.path("pki", "kube-apiserver.key"),
		"--client-ca-file=" + c.path("pki", "ca.crt"),
		"--kubelet-certificate-authority=" + c.path("pki", "ca.crt"),
		"--kubelet-client-certificate=" + c.path("pki", "kubelet-client.crt"),
		"--kubelet-client-key=" + c.path("pki", "kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP", // names need DNS
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.path("pki", "service-accounts.pub"),
		"--service-account-signing-key-file=" + c.path("pki", "service-accounts.key"),
		// Webhooks and aggregated APIs: the API server connects to the pods behind
		// their services, as there is no kube-proxy.
		"--enable-aggregator-routing=true",
		"--proxy-client-cert-file=" + c.path("pki", frontProxy+".crt"),
		"--proxy-client-key-file=" + c.path("pki", frontProxy+".key"),
		"--requestheader-client-ca-file=" + c.path("pki", "ca.crt"),
		"--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
	}
	if c.settings.RuntimeConfig != "" {
		args = append(args, "--runtime-config="+c.settings.RuntimeConfig)
	}
	return c.process(apiServer, apiServer, c.withGates(args)...)
}

func (c *Cluster) schedulerProcess() machine.Process {
	return c.process(scheduler, scheduler, c.withGates(c.clientArgs(scheduler))...)
}

func (c *Cluster) controllerManagerProcess() machine.Process {
	args := append(c.clientArgs(controllerManager),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.path("pki", "service-accounts.key"),
		"--root-ca-file="+c.path("pki", "ca.crt"),
		"--cluster-signing-cert-file="+c.path("pki", "ca.crt"),
		"--cluster-signing-key-file="+c.path("pki", "ca.key"),
		// The default of 20 requests a second stretches its start by seconds.
		"--kube-api-qps=200", "--kube-api-burst=400",
	)
	return c.process(controllerManager, controllerManager, c.withGates(args)...)
}

// clientArgs are the arguments of a component that works through the API.
func (c *Cluster) clientArgs(name string) []string {
	kubeconfig := c.path("pki", name+".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false", // there is only one
	}
}

func (c *Cluster) withGates(args []string) []string {
	if c.settings.Gates == "" {
		return args
	}
	return append(args, "--feature-gates="+c.settings.Gates)
}

// process is a process of one of the built programs. Its log has its name.
func (c *Cluster) process(name, program string, args ...string) machine.Process {
	return machine.Process{
		Name: name,
		Args: append([]string{c.settings.Parts.Program(program)}, args...),
		Env:  c.env(),
		Log:  c.logFile(name),
	}
}
