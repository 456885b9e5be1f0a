"""Skills: folders of instructions for models, served as resources and by methods of their own. SEP-2640."""
