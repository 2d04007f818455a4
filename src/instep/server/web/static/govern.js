// Enhances the screens of rollouts, policies, the wizard, notifications and settings.
