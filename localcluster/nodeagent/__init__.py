"""A stand-in for the kubelet: runs the pods of its nodes as processes of this machine.

What it does, it does as the kubelet of Kubernetes 1.37 does, so that what watches pods cannot tell
the difference. What it does not do:

- It isolates nothing: securityContext, resource limits and network policies are not enforced. All
  pods share the machine's files (but for their volumes) and one network namespace, so a program
  must listen on its pod's address alone.
- Volumes other than emptyDir, hostPath, configMap, secret, projected and downwardAPI keep a pod in
  ContainerCreating, with an event that says so. gRPC probes fail and say so.
- postStart hooks, ephemeral containers, exec, attach, port-forward, termination messages,
  activeDeadlineSeconds and changes of a running pod's containers are not there.
"""
