package kmod

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// NodeModulesConfigs is the resource in which the Kernel Module Management operator records which
// modules it loads on each node. An object has the name of its node
// (kubernetes-sigs/kernel-module-management, api/v1beta1). The plugin needs the verbs get and
// delete for the object of its node only.
var NodeModulesConfigs = schema.GroupVersionResource{Group: "kmm.sigs.x-k8s.io", Version: "v1beta1", Resource: "nodemodulesconfigs"}

// answerPatience limits a call of the API server.
const answerPatience = 10 * time.Second

// KMM is the Kernel Module Management operator, with which AMD's GPU operator loads amdgpu. It
// implements Manager.
type KMM struct {
	Client dynamic.Interface
	// Node is the name of this node, Module the name of the kernel module.
	Node, Module string
}

var _ Manager = (*KMM)(nil)

// nodeModulesConfig has the fields of a NodeModulesConfig that are read.
type nodeModulesConfig struct {
	Spec struct {
		Modules []struct {
			Config struct {
				Modprobe struct {
					ModuleName string `json:"moduleName"`
					RawArgs    struct {
						Load []string `json:"load"`
					} `json:"rawArgs"`
				} `json:"modprobe"`
			} `json:"config"`
		} `json:"modules"`
	} `json:"spec"`
}

// Manages reports whether the operator loads the module on this node. A cluster
// without the operator has no such objects.
func (k *KMM) Manages(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	object, err := k.Client.Resource(NodeModulesConfigs).Get(ctx, k.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look whether the Kernel Module Management operator loads %s on node %s: %w", k.Module, k.Node, err)
	}
	return manages(object, k.Module)
}

// manages reports whether a NodeModulesConfig has the module.
func manages(object *unstructured.Unstructured, module string) (bool, error) {
	var c nodeModulesConfig
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &c); err != nil {
		return false, fmt.Errorf("read NodeModulesConfig %s: %w", object.GetName(), err)
	}
	for _, m := range c.Spec.Modules {
		if m.Config.Modprobe.ModuleName == module || slices.Contains(m.Config.Modprobe.RawArgs.Load, module) {
			return true, nil
		}
	}
	return false, nil
}

// Load deletes the node's NodeModulesConfig. The operator creates it again without any loaded
// modules, and so loads all modules of the node that are missing.
func (k *KMM) Load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	err := k.Client.Resource(NodeModulesConfigs).Delete(ctx, k.Node, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete NodeModulesConfig %s, for the Kernel Module Management operator to load %s: %w", k.Node, k.Module, err)
	}
	return nil
}
